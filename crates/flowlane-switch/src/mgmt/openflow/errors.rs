//! The errors of OpenFlow for what the switch refuses.

use flowlane_openflow::ErrorCode;

use flowlane::tunnel::OptionMapError;

use crate::control::{BundleError, GroupError, MeterError, OptionsError, Refusal};
use crate::ruleset::RulesetError;

/// The error for refused changes.
pub(super) fn of_changes(error: &BundleError) -> ErrorCode {
    match error {
        BundleError::Group { error, .. } => of_group(*error),
        BundleError::Rule(refused) => of_refusal(&refused.refusal),
        BundleError::Port { .. } => ErrorCode::PortModBadPort,
    }
}

/// The error for a refused rule.
pub(super) fn of_refusal(refusal: &Refusal) -> ErrorCode {
    match refusal {
        Refusal::Pipeline(error) => of_ruleset(error),
        Refusal::Absent { what: "group", .. } => ErrorCode::ActionBadOutGroup,
        Refusal::Absent { what: "meter", .. } => ErrorCode::MeterModInvalidMeter,
        Refusal::Absent { .. } => ErrorCode::ActionBadOutPort,
        Refusal::NoOption(_) => ErrorCode::NiciraFlowModInvalidTlvField,
        Refusal::Device(_) => ErrorCode::FlowModNotPermitted,
        Refusal::Overlap => ErrorCode::FlowModOverlap,
        // Controllers may name ports that are not there: none of them removes one.
        Refusal::PortInUse { .. } => ErrorCode::RequestNotPermitted,
    }
}

fn of_ruleset(error: &RulesetError) -> ErrorCode {
    match error {
        RulesetError::NoTable(_) => ErrorCode::RequestBadTableId,
        RulesetError::NoGotoTable(_) | RulesetError::GotoBackwards { .. } => ErrorCode::InstructionBadTableId,
        RulesetError::GotoNotLast(_) => ErrorCode::InstructionUnsupInst,
        RulesetError::Pushes(_) => ErrorCode::ActionTooMany,
        RulesetError::Field(_) => ErrorCode::ActionBadSetArgument,
        RulesetError::Unsupported { .. } => ErrorCode::ActionBadType,
        RulesetError::ConjunctionOnDevice => ErrorCode::FlowModNotPermitted,
        RulesetError::RecircId => ErrorCode::RequestNotPermitted,
        RulesetError::Conjunction => ErrorCode::NiciraActionBadConjunction,
        RulesetError::Insert { .. } => ErrorCode::FlowModTableFull,
        RulesetError::Controlled => ErrorCode::FlowModNotPermitted,
    }
}

/// The error for a refused group.
fn of_group(error: GroupError) -> ErrorCode {
    match error {
        GroupError::Exists(_) => ErrorCode::GroupModGroupExists,
        GroupError::Unknown(_) => ErrorCode::GroupModUnknownGroup,
        GroupError::Loop(_) => ErrorCode::GroupModLoop,
        GroupError::Invalid(_) => ErrorCode::GroupModInvalidGroup,
        GroupError::UnknownBucket(_) => ErrorCode::GroupModUnknownBucket,
        GroupError::BucketExists(_) => ErrorCode::GroupModBucketExists,
        GroupError::BadBucket => ErrorCode::GroupModBadBucket,
        GroupError::TooMany => ErrorCode::GroupModOutOfGroups,
        GroupError::TooManyBuckets => ErrorCode::GroupModOutOfBuckets,
    }
}

/// The error for meters that cannot be changed.
pub(super) fn of_meter(error: MeterError) -> ErrorCode {
    match error {
        MeterError::Exists(_) => ErrorCode::MeterModMeterExists,
        MeterError::Unknown(_) => ErrorCode::MeterModUnknownMeter,
        MeterError::Invalid(_) => ErrorCode::MeterModInvalidMeter,
        MeterError::NoRate => ErrorCode::MeterModBadRate,
        MeterError::NoLevels => ErrorCode::MeterModBadBandValue,
        MeterError::ControllerRemarks => ErrorCode::MeterModBadBand,
        MeterError::TooMany => ErrorCode::MeterModOutOfMeters,
        MeterError::TooManyBands => ErrorCode::MeterModOutOfBands,
    }
}

/// The error for fields of options that cannot be changed.
pub(super) fn of_options(error: OptionsError) -> ErrorCode {
    match error {
        OptionsError::InUse(_) => ErrorCode::TlvTableInvalidTlvDel,
        OptionsError::Map(OptionMapError::NoField(_)) => ErrorCode::TlvTableBadFieldIdx,
        OptionsError::Map(OptionMapError::FieldTaken(_)) => ErrorCode::TlvTableAlreadyMapped,
        OptionsError::Map(OptionMapError::OptionTaken(_)) => ErrorCode::TlvTableDupEntry,
        OptionsError::Map(OptionMapError::TooLong(_)) => ErrorCode::TlvTableTableFull,
        OptionsError::Map(_) => ErrorCode::TlvTableBadOptLen,
    }
}
