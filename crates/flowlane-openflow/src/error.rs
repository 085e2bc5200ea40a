//! Errors of OpenFlow, with the numbers that each version has for them.
//!
//! The standard errors are those of OpenFlow 1.0 5.4.4, 1.3.5 7.5.4, 1.4.1 7.5.4 and 1.5.1 7.5.4. An error that a version lacks is
//! sent as an extension of Nicira or of the ONF, as Open vSwitch does.

use crate::version::Version;

/// The name space of an error's type.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ErrorSpace {
    /// The OpenFlow version's own.
    Standard,
    /// Nicira's extensions (0x2320).
    Nicira,
    /// The ONF's extensions (0x4f4e4600).
    Onf,
}

/// The numbers of an error in a version.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ErrorNumbers {
    /// Whose numbers they are.
    pub space: ErrorSpace,
    /// The type; of an extension of OpenFlow 1.3 and later, the only number.
    pub kind: u16,
    /// The code.
    pub code: u16,
}

const NONE: Option<ErrorNumbers> = None;

const fn std(kind: u16, code: u16) -> Option<ErrorNumbers> {
    Some(ErrorNumbers { space: ErrorSpace::Standard, kind, code })
}

const fn nx(kind: u16, code: u16) -> Option<ErrorNumbers> {
    Some(ErrorNumbers { space: ErrorSpace::Nicira, kind, code })
}

const fn onf(kind: u16, code: u16) -> Option<ErrorNumbers> {
    Some(ErrorNumbers { space: ErrorSpace::Onf, kind, code })
}

macro_rules! errors {
    ($($variant:ident, $name:literal, $v10:expr, $v13:expr, $v14:expr, $v15:expr;)*) => {
        /// An error. The names are those of the specifications, or of Nicira's extensions.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum ErrorCode {
            $(#[doc = concat!("`", $name, "`.")] $variant,)*
        }

        impl ErrorCode {
            /// All of them.
            pub const ALL: &[ErrorCode] = &[$(Self::$variant,)*];

            /// The name in the specification.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The numbers in OpenFlow 1.0, 1.3, 1.4 and 1.5.
            const fn all_numbers(self) -> [Option<ErrorNumbers>; 4] {
                match self { $(Self::$variant => [$v10, $v13, $v14, $v15],)* }
            }
        }
    };
}

#[rustfmt::skip]
errors! {
    HelloIncompatible, "OFPHFC_INCOMPATIBLE", std(0, 0), std(0, 0), std(0, 0), std(0, 0);
    HelloNotPermitted, "OFPHFC_EPERM", std(0, 1), std(0, 1), std(0, 1), std(0, 1);
    RequestBadVersion, "OFPBRC_BAD_VERSION", std(1, 0), std(1, 0), std(1, 0), std(1, 0);
    RequestBadType, "OFPBRC_BAD_TYPE", std(1, 1), std(1, 1), std(1, 1), std(1, 1);
    RequestBadStat, "OFPBRC_BAD_STAT", std(1, 2), std(1, 2), std(1, 2), std(1, 2);
    RequestBadVendor, "OFPBRC_BAD_VENDOR", std(1, 3), std(1, 3), std(1, 3), std(1, 3);
    RequestBadSubtype, "OFPBRC_BAD_SUBTYPE", std(1, 4), std(1, 4), std(1, 4), std(1, 4);
    RequestNotPermitted, "OFPBRC_EPERM", std(1, 5), std(1, 5), std(1, 5), std(1, 5);
    RequestBadLen, "OFPBRC_BAD_LEN", std(1, 6), std(1, 6), std(1, 6), std(1, 6);
    RequestBufferEmpty, "OFPBRC_BUFFER_EMPTY", std(1, 7), std(1, 7), std(1, 7), std(1, 7);
    RequestBufferUnknown, "OFPBRC_BUFFER_UNKNOWN", std(1, 8), std(1, 8), std(1, 8), std(1, 8);
    RequestBadTableId, "OFPBRC_BAD_TABLE_ID", nx(1, 512), std(1, 9), std(1, 9), std(1, 9);
    RequestIsSecondary, "OFPBRC_IS_SECONDARY", std(1, 5), std(1, 10), std(1, 10), std(1, 10);
    RequestBadPort, "OFPBRC_BAD_PORT", nx(1, 514), std(1, 11), std(1, 11), std(1, 11);
    RequestBadPacket, "OFPBRC_BAD_PACKET", NONE, std(1, 12), std(1, 12), std(1, 12);
    RequestMultipartBufferOverflow, "OFPBRC_MULTIPART_BUFFER_OVERFLOW", NONE, std(1, 13), std(1, 13), std(1, 13);
    RequestMultipartRequestTimeout, "OFPBRC_MULTIPART_REQUEST_TIMEOUT", NONE, onf(2640, 0), std(1, 14), std(1, 14);
    RequestMultipartReplyTimeout, "OFPBRC_MULTIPART_REPLY_TIMEOUT", NONE, onf(2641, 0), std(1, 15), std(1, 15);
    RequestMultipartBadSched, "OFPBRC_MULTIPART_BAD_SCHED", NONE, NONE, NONE, std(1, 16);
    RequestPipelineFieldsOnly, "OFPBRC_PIPELINE_FIELDS_ONLY", NONE, NONE, NONE, std(1, 17);
    RequestUnknown, "OFPBRC_UNKNOWN", NONE, NONE, NONE, std(1, 18);
    ActionBadType, "OFPBAC_BAD_TYPE", std(2, 0), std(2, 0), std(2, 0), std(2, 0);
    ActionBadLen, "OFPBAC_BAD_LEN", std(2, 1), std(2, 1), std(2, 1), std(2, 1);
    ActionBadVendor, "OFPBAC_BAD_VENDOR", std(2, 2), std(2, 2), std(2, 2), std(2, 2);
    ActionBadVendorType, "OFPBAC_BAD_VENDOR_TYPE", std(2, 3), std(2, 3), std(2, 3), std(2, 3);
    ActionBadOutPort, "OFPBAC_BAD_OUT_PORT", std(2, 4), std(2, 4), std(2, 4), std(2, 4);
    ActionBadArgument, "OFPBAC_BAD_ARGUMENT", std(2, 5), std(2, 5), std(2, 5), std(2, 5);
    ActionNotPermitted, "OFPBAC_EPERM", std(2, 6), std(2, 6), std(2, 6), std(2, 6);
    ActionTooMany, "OFPBAC_TOO_MANY", std(2, 7), std(2, 7), std(2, 7), std(2, 7);
    ActionBadQueue, "OFPBAC_BAD_QUEUE", std(2, 8), std(2, 8), std(2, 8), std(2, 8);
    ActionBadOutGroup, "OFPBAC_BAD_OUT_GROUP", nx(2, 9), std(2, 9), std(2, 9), std(2, 9);
    ActionMatchInconsistent, "OFPBAC_MATCH_INCONSISTENT", nx(1, 522), std(2, 10), std(2, 10), std(2, 10);
    ActionUnsupportedOrder, "OFPBAC_UNSUPPORTED_ORDER", NONE, std(2, 11), std(2, 11), std(2, 11);
    ActionBadTag, "OFPBAC_BAD_TAG", NONE, std(2, 12), std(2, 12), std(2, 12);
    ActionBadSetType, "OFPBAC_BAD_SET_TYPE", nx(1, 523), std(2, 13), std(2, 13), std(2, 13);
    ActionBadSetLen, "OFPBAC_BAD_SET_LEN", nx(1, 524), std(2, 14), std(2, 14), std(2, 14);
    ActionBadSetArgument, "OFPBAC_BAD_SET_ARGUMENT", nx(1, 525), std(2, 15), std(2, 15), std(2, 15);
    ActionBadSetMask, "OFPBAC_BAD_SET_MASK", NONE, onf(4250, 0), onf(4250, 0), std(2, 16);
    ActionBadMeter, "OFPBAC_BAD_METER", NONE, NONE, NONE, std(2, 17);
    InstructionUnknownInst, "OFPBIC_UNKNOWN_INST", NONE, std(3, 0), std(3, 0), std(3, 0);
    InstructionUnsupInst, "OFPBIC_UNSUP_INST", nx(2, 257), std(3, 1), std(3, 1), std(3, 1);
    InstructionBadTableId, "OFPBIC_BAD_TABLE_ID", NONE, std(3, 2), std(3, 2), std(3, 2);
    InstructionUnsupMetadata, "OFPBIC_UNSUP_METADATA", NONE, std(3, 3), std(3, 3), std(3, 3);
    InstructionUnsupMetadataMask, "OFPBIC_UNSUP_METADATA_MASK", NONE, std(3, 4), std(3, 4), std(3, 4);
    InstructionBadExperimenter, "OFPBIC_BAD_EXPERIMENTER", NONE, std(3, 5), std(3, 5), std(3, 5);
    InstructionBadExpType, "OFPBIC_BAD_EXP_TYPE", NONE, std(3, 6), std(3, 6), std(3, 6);
    InstructionBadLen, "OFPBIC_BAD_LEN", NONE, std(3, 7), std(3, 7), std(3, 7);
    InstructionNotPermitted, "OFPBIC_EPERM", NONE, std(3, 8), std(3, 8), std(3, 8);
    InstructionDupInst, "OFPBIC_DUP_INST", NONE, onf(2600, 0), std(3, 9), std(3, 9);
    MatchBadType, "OFPBMC_BAD_TYPE", NONE, std(4, 0), std(4, 0), std(4, 0);
    MatchBadLen, "OFPBMC_BAD_LEN", NONE, std(4, 1), std(4, 1), std(4, 1);
    MatchBadTag, "OFPBMC_BAD_TAG", NONE, std(4, 2), std(4, 2), std(4, 2);
    MatchBadDlAddrMask, "OFPBMC_BAD_DL_ADDR_MASK", NONE, std(4, 3), std(4, 3), std(4, 3);
    MatchBadNwAddrMask, "OFPBMC_BAD_NW_ADDR_MASK", NONE, std(4, 4), std(4, 4), std(4, 4);
    MatchBadWildcards, "OFPBMC_BAD_WILDCARDS", nx(1, 262), std(4, 5), std(4, 5), std(4, 5);
    MatchBadField, "OFPBMC_BAD_FIELD", nx(0, 263), std(4, 6), std(4, 6), std(4, 6);
    MatchBadValue, "OFPBMC_BAD_VALUE", nx(1, 258), std(4, 7), std(4, 7), std(4, 7);
    MatchBadMask, "OFPBMC_BAD_MASK", nx(1, 259), std(4, 8), std(4, 8), std(4, 8);
    MatchBadPrereq, "OFPBMC_BAD_PREREQ", nx(1, 260), std(4, 9), std(4, 9), std(4, 9);
    MatchDupField, "OFPBMC_DUP_FIELD", nx(1, 261), std(4, 10), std(4, 10), std(4, 10);
    MatchNotPermitted, "OFPBMC_EPERM", NONE, std(4, 11), std(4, 11), std(4, 11);
    FlowModBadEmergTimeout, "OFPFMFC_BAD_EMERG_TIMEOUT", std(3, 3), NONE, NONE, NONE;
    FlowModUnsupported, "OFPFMFC_UNSUPPORTED", std(3, 5), NONE, NONE, NONE;
    FlowModUnknown, "OFPFMFC_UNKNOWN", NONE, std(5, 0), std(5, 0), std(5, 0);
    FlowModTableFull, "OFPFMFC_TABLE_FULL", std(3, 0), std(5, 1), std(5, 1), std(5, 1);
    FlowModBadTableId, "OFPFMFC_BAD_TABLE_ID", NONE, std(5, 2), std(5, 2), std(5, 2);
    FlowModOverlap, "OFPFMFC_OVERLAP", std(3, 1), std(5, 3), std(5, 3), std(5, 3);
    FlowModNotPermitted, "OFPFMFC_EPERM", std(3, 2), std(5, 4), std(5, 4), std(5, 4);
    FlowModBadTimeout, "OFPFMFC_BAD_TIMEOUT", NONE, std(5, 5), std(5, 5), std(5, 5);
    FlowModBadCommand, "OFPFMFC_BAD_COMMAND", std(3, 4), std(5, 6), std(5, 6), std(5, 6);
    FlowModBadFlags, "OFPFMFC_BAD_FLAGS", nx(3, 258), std(5, 7), std(5, 7), std(5, 7);
    FlowModCantSync, "OFPFMFC_CANT_SYNC", NONE, NONE, std(5, 8), std(5, 8);
    FlowModBadPriority, "OFPFMFC_BAD_PRIORITY", NONE, onf(2360, 0), std(5, 9), std(5, 9);
    FlowModIsSync, "OFPFMFC_IS_SYNC", NONE, NONE, std(5, 10), std(5, 10);
    GroupModGroupExists, "OFPGMFC_GROUP_EXISTS", nx(6, 0), std(6, 0), std(6, 0), std(6, 0);
    GroupModInvalidGroup, "OFPGMFC_INVALID_GROUP", nx(6, 1), std(6, 1), std(6, 1), std(6, 1);
    GroupModWeightUnsupported, "OFPGMFC_WEIGHT_UNSUPPORTED", nx(6, 2), std(6, 2), std(6, 2), std(6, 2);
    GroupModOutOfGroups, "OFPGMFC_OUT_OF_GROUPS", nx(6, 3), std(6, 3), std(6, 3), std(6, 3);
    GroupModOutOfBuckets, "OFPGMFC_OUT_OF_BUCKETS", nx(6, 4), std(6, 4), std(6, 4), std(6, 4);
    GroupModChainingUnsupported, "OFPGMFC_CHAINING_UNSUPPORTED", nx(6, 5), std(6, 5), std(6, 5), std(6, 5);
    GroupModWatchUnsupported, "OFPGMFC_WATCH_UNSUPPORTED", nx(6, 6), std(6, 6), std(6, 6), std(6, 6);
    GroupModLoop, "OFPGMFC_LOOP", nx(6, 7), std(6, 7), std(6, 7), std(6, 7);
    GroupModUnknownGroup, "OFPGMFC_UNKNOWN_GROUP", nx(6, 8), std(6, 8), std(6, 8), std(6, 8);
    GroupModChainedGroup, "OFPGMFC_CHAINED_GROUP", nx(6, 9), std(6, 9), std(6, 9), std(6, 9);
    GroupModBadType, "OFPGMFC_BAD_TYPE", nx(6, 10), std(6, 10), std(6, 10), std(6, 10);
    GroupModBadCommand, "OFPGMFC_BAD_COMMAND", nx(6, 11), std(6, 11), std(6, 11), std(6, 11);
    GroupModBadBucket, "OFPGMFC_BAD_BUCKET", nx(6, 12), std(6, 12), std(6, 12), std(6, 12);
    GroupModBadWatch, "OFPGMFC_BAD_WATCH", nx(6, 13), std(6, 13), std(6, 13), std(6, 13);
    GroupModNotPermitted, "OFPGMFC_EPERM", nx(6, 14), std(6, 14), std(6, 14), std(6, 14);
    GroupModUnknownBucket, "OFPGMFC_UNKNOWN_BUCKET", nx(6, 15), NONE, NONE, std(6, 15);
    GroupModBucketExists, "OFPGMFC_BUCKET_EXISTS", nx(6, 16), NONE, NONE, std(6, 16);
    PortModBadPort, "OFPPMFC_BAD_PORT", std(4, 0), std(7, 0), std(7, 0), std(7, 0);
    PortModBadHwAddr, "OFPPMFC_BAD_HW_ADDR", std(4, 1), std(7, 1), std(7, 1), std(7, 1);
    PortModBadConfig, "OFPPMFC_BAD_CONFIG", NONE, std(7, 2), std(7, 2), std(7, 2);
    PortModBadAdvertise, "OFPPMFC_BAD_ADVERTISE", NONE, std(7, 3), std(7, 3), std(7, 3);
    PortModNotPermitted, "OFPPMFC_EPERM", NONE, std(7, 4), std(7, 4), std(7, 4);
    TableModBadTable, "OFPTMFC_BAD_TABLE", NONE, std(8, 0), std(8, 0), std(8, 0);
    TableModBadConfig, "OFPTMFC_BAD_CONFIG", NONE, std(8, 1), std(8, 1), std(8, 1);
    TableModNotPermitted, "OFPTMFC_EPERM", NONE, std(8, 2), std(8, 2), std(8, 2);
    QueueBadPort, "OFPQOFC_BAD_PORT", std(5, 0), std(9, 0), std(9, 0), std(9, 0);
    QueueBadQueue, "OFPQOFC_BAD_QUEUE", std(5, 1), std(9, 1), std(9, 1), std(9, 1);
    QueueNotPermitted, "OFPQOFC_EPERM", std(5, 2), std(9, 2), std(9, 2), std(9, 2);
    ConfigBadFlags, "OFPSCFC_BAD_FLAGS", NONE, std(10, 0), std(10, 0), std(10, 0);
    ConfigBadLen, "OFPSCFC_BAD_LEN", NONE, std(10, 1), std(10, 1), std(10, 1);
    ConfigNotPermitted, "OFPSCFC_EPERM", NONE, std(10, 2), std(10, 2), std(10, 2);
    RoleStale, "OFPRRFC_STALE", NONE, std(11, 0), std(11, 0), std(11, 0);
    RoleUnsup, "OFPRRFC_UNSUP", NONE, std(11, 1), std(11, 1), std(11, 1);
    RoleBadRole, "OFPRRFC_BAD_ROLE", nx(1, 513), std(11, 2), std(11, 2), std(11, 2);
    RoleIdUnsup, "OFPRRFC_ID_UNSUP", NONE, NONE, NONE, std(11, 3);
    RoleIdInUse, "OFPRRFC_ID_IN_USE", NONE, NONE, NONE, std(11, 4);
    MeterModUnknown, "OFPMMFC_UNKNOWN", NONE, std(12, 0), std(12, 0), std(12, 0);
    MeterModMeterExists, "OFPMMFC_METER_EXISTS", NONE, std(12, 1), std(12, 1), std(12, 1);
    MeterModInvalidMeter, "OFPMMFC_INVALID_METER", NONE, std(12, 2), std(12, 2), std(12, 2);
    MeterModUnknownMeter, "OFPMMFC_UNKNOWN_METER", NONE, std(12, 3), std(12, 3), std(12, 3);
    MeterModBadCommand, "OFPMMFC_BAD_COMMAND", NONE, std(12, 4), std(12, 4), std(12, 4);
    MeterModBadFlags, "OFPMMFC_BAD_FLAGS", NONE, std(12, 5), std(12, 5), std(12, 5);
    MeterModBadRate, "OFPMMFC_BAD_RATE", NONE, std(12, 6), std(12, 6), std(12, 6);
    MeterModBadBurst, "OFPMMFC_BAD_BURST", NONE, std(12, 7), std(12, 7), std(12, 7);
    MeterModBadBand, "OFPMMFC_BAD_BAND", NONE, std(12, 8), std(12, 8), std(12, 8);
    MeterModBadBandValue, "OFPMMFC_BAD_BAND_VALUE", NONE, std(12, 9), std(12, 9), std(12, 9);
    MeterModOutOfMeters, "OFPMMFC_OUT_OF_METERS", NONE, std(12, 10), std(12, 10), std(12, 10);
    MeterModOutOfBands, "OFPMMFC_OUT_OF_BANDS", NONE, std(12, 11), std(12, 11), std(12, 11);
    TableFeaturesBadTable, "OFPTFFC_BAD_TABLE", NONE, std(13, 0), std(13, 0), std(13, 0);
    TableFeaturesBadMetadata, "OFPTFFC_BAD_METADATA", NONE, std(13, 1), std(13, 1), std(13, 1);
    TableFeaturesNotPermitted, "OFPTFFC_EPERM", NONE, std(13, 5), std(13, 5), std(13, 5);
    TableFeaturesBadCapa, "OFPTFFC_BAD_CAPA", NONE, NONE, NONE, std(13, 6);
    TableFeaturesBadMaxEnt, "OFPTFFC_BAD_MAX_ENT", NONE, NONE, NONE, std(13, 7);
    TableFeaturesBadFeatures, "OFPTFFC_BAD_FEATURES", NONE, NONE, NONE, std(13, 8);
    TableFeaturesBadCommand, "OFPTFFC_BAD_COMMAND", NONE, NONE, NONE, std(13, 9);
    TableFeaturesTooMany, "OFPTFFC_TOO_MANY", NONE, NONE, NONE, std(13, 10);
    PropertyBadType, "OFPBPC_BAD_TYPE", nx(13, 2), std(13, 2), std(14, 0), std(14, 0);
    PropertyBadLen, "OFPBPC_BAD_LEN", nx(13, 3), std(13, 3), std(14, 1), std(14, 1);
    PropertyBadValue, "OFPBPC_BAD_VALUE", nx(13, 4), std(13, 4), std(14, 2), std(14, 2);
    PropertyTooMany, "OFPBPC_TOO_MANY", nx(14, 3), onf(4443, 0), std(14, 3), std(14, 3);
    PropertyDupType, "OFPBPC_DUP_TYPE", nx(14, 4), onf(4444, 0), std(14, 4), std(14, 4);
    PropertyBadExperimenter, "OFPBPC_BAD_EXPERIMENTER", nx(14, 5), onf(4445, 0), std(14, 5), std(14, 5);
    PropertyBadExpType, "OFPBPC_BAD_EXP_TYPE", nx(14, 6), onf(4446, 0), std(14, 6), std(14, 6);
    PropertyBadExpValue, "OFPBPC_BAD_EXP_VALUE", nx(14, 7), onf(4447, 0), std(14, 7), std(14, 7);
    PropertyNotPermitted, "OFPBPC_EPERM", nx(14, 8), onf(4448, 0), std(14, 8), std(14, 8);
    AsyncInvalid, "OFPACFC_INVALID", NONE, onf(2370, 0), std(15, 0), std(15, 0);
    AsyncUnsupported, "OFPACFC_UNSUPPORTED", NONE, onf(2371, 0), std(15, 1), std(15, 1);
    AsyncNotPermitted, "OFPACFC_EPERM", NONE, onf(2372, 0), std(15, 2), std(15, 2);
    BundleUnknown, "OFPBFC_UNKNOWN", NONE, onf(2300, 0), std(17, 0), std(17, 0);
    BundleNotPermitted, "OFPBFC_EPERM", NONE, onf(2301, 0), std(17, 1), std(17, 1);
    BundleBadId, "OFPBFC_BAD_ID", NONE, onf(2302, 0), std(17, 2), std(17, 2);
    BundleExist, "OFPBFC_BUNDLE_EXIST", NONE, onf(2303, 0), std(17, 3), std(17, 3);
    BundleClosed, "OFPBFC_BUNDLE_CLOSED", NONE, onf(2304, 0), std(17, 4), std(17, 4);
    BundleOutOfBundles, "OFPBFC_OUT_OF_BUNDLES", NONE, onf(2305, 0), std(17, 5), std(17, 5);
    BundleBadType, "OFPBFC_BAD_TYPE", NONE, onf(2306, 0), std(17, 6), std(17, 6);
    BundleBadFlags, "OFPBFC_BAD_FLAGS", NONE, onf(2307, 0), std(17, 7), std(17, 7);
    BundleMsgBadLen, "OFPBFC_MSG_BAD_LEN", NONE, onf(2308, 0), std(17, 8), std(17, 8);
    BundleMsgBadXid, "OFPBFC_MSG_BAD_XID", NONE, onf(2309, 0), std(17, 9), std(17, 9);
    BundleMsgUnsup, "OFPBFC_MSG_UNSUP", NONE, onf(2310, 0), std(17, 10), std(17, 10);
    BundleMsgConflict, "OFPBFC_MSG_CONFLICT", NONE, onf(2311, 0), std(17, 11), std(17, 11);
    BundleMsgTooMany, "OFPBFC_MSG_TOO_MANY", NONE, onf(2312, 0), std(17, 12), std(17, 12);
    BundleMsgFailed, "OFPBFC_MSG_FAILED", NONE, onf(2313, 0), std(17, 13), std(17, 13);
    BundleTimeout, "OFPBFC_TIMEOUT", NONE, onf(2314, 0), std(17, 14), std(17, 14);
    BundleInProgress, "OFPBFC_BUNDLE_IN_PROGRESS", NONE, onf(2315, 0), std(17, 15), std(17, 15);
    BundleSchedNotSupported, "OFPBFC_SCHED_NOT_SUPPORTED", NONE, NONE, NONE, std(17, 16);
    BundleSchedFuture, "OFPBFC_SCHED_FUTURE", NONE, NONE, NONE, std(17, 17);
    BundleSchedPast, "OFPBFC_SCHED_PAST", NONE, NONE, NONE, std(17, 18);
    BundleBadVersion, "OFPBFC_BAD_VERSION", NONE, NONE, nx(22, 0), nx(22, 0);
    MonitorUnknown, "OFPMOFC_UNKNOWN", NONE, NONE, std(16, 0), std(16, 0);
    MonitorMonitorExists, "OFPMOFC_MONITOR_EXISTS", nx(1, 517), nx(6, 0), std(16, 1), std(16, 1);
    MonitorInvalidMonitor, "OFPMOFC_INVALID_MONITOR", NONE, NONE, std(16, 2), std(16, 2);
    MonitorUnknownMonitor, "OFPMOFC_UNKNOWN_MONITOR", nx(1, 519), nx(8, 0), std(16, 3), std(16, 3);
    MonitorBadCommand, "OFPMOFC_BAD_COMMAND", NONE, NONE, std(16, 4), std(16, 4);
    MonitorBadFlags, "OFPMOFC_BAD_FLAGS", nx(1, 518), nx(7, 0), std(16, 5), std(16, 5);
    MonitorBadTableId, "OFPMOFC_BAD_TABLE_ID", NONE, NONE, std(16, 6), std(16, 6);
    MonitorBadOut, "OFPMOFC_BAD_OUT", NONE, NONE, std(16, 7), std(16, 7);
    NiciraRequestNxmInvalid, "NXBRC_NXM_INVALID", nx(1, 256), nx(2, 0), nx(2, 0), nx(2, 0);
    NiciraRequestNxmBadType, "NXBRC_NXM_BAD_TYPE", nx(1, 257), nx(3, 0), nx(3, 0), nx(3, 0);
    NiciraRequestMustBeZero, "NXBRC_MUST_BE_ZERO", nx(1, 515), nx(4, 0), nx(4, 0), nx(4, 0);
    NiciraRequestBadReason, "NXBRC_BAD_REASON", nx(1, 516), nx(5, 0), nx(5, 0), nx(5, 0);
    NiciraRequestFmBadEvent, "NXBRC_FM_BAD_EVENT", nx(1, 520), nx(9, 0), nx(9, 0), nx(9, 0);
    NiciraRequestUnencodableError, "NXBRC_UNENCODABLE_ERROR", nx(1, 521), nx(10, 0), nx(10, 0), nx(10, 0);
    NiciraActionMustBeZero, "NXBAC_MUST_BE_ZERO", nx(2, 256), nx(11, 0), nx(11, 0), nx(11, 0);
    NiciraActionBadConjunction, "NXBAC_BAD_CONJUNCTION", nx(2, 526), nx(15, 0), nx(15, 0), nx(15, 0);
    NiciraActionBadHeaderType, "NXBAC_BAD_HEADER_TYPE", NONE, nx(39, 0), nx(39, 0), nx(39, 0);
    NiciraActionUnknownEdProp, "NXBAC_UNKNOWN_ED_PROP", NONE, nx(40, 0), nx(40, 0), nx(40, 0);
    NiciraActionBadEdProp, "NXBAC_BAD_ED_PROP", NONE, nx(41, 0), nx(41, 0), nx(41, 0);
    NiciraActionCtDatapathSupport, "NXBAC_CT_DATAPATH_SUPPORT", nx(1, 265), nx(42, 0), nx(42, 0), nx(42, 0);
    NiciraMatchCtDatapathSupport, "NXBMC_CT_DATAPATH_SUPPORT", nx(1, 264), nx(43, 0), nx(43, 0), nx(43, 0);
    NiciraFlowModHardware, "NXFMFC_HARDWARE", nx(5, 256), nx(12, 0), nx(12, 0), nx(12, 0);
    NiciraFlowModBadTableId, "NXFMFC_BAD_TABLE_ID", nx(5, 257), nx(13, 0), nx(13, 0), nx(13, 0);
    NiciraResumeStale, "NXR_STALE", nx(1, 534), nx(35, 0), nx(35, 0), nx(35, 0);
    NiciraFlowModInvalidTlvField, "NXFMFC_INVALID_TLV_FIELD", nx(1, 536), nx(37, 0), nx(37, 0), nx(37, 0);
    NiciraNotConfigured, "NXST_NOT_CONFIGURED", nx(1, 535), nx(36, 0), nx(36, 0), nx(36, 0);
    NiciraQueueQueueError, "NXQOFC_QUEUE_ERROR", NONE, NONE, nx(23, 0), nx(23, 0);
    NiciraTableFeaturesDupTable, "NXTFFC_DUP_TABLE", NONE, nx(44, 0), nx(44, 0), nx(44, 0);
    TlvTableBadCommand, "NXTTMFC_BAD_COMMAND", nx(1, 527), nx(16, 0), nx(16, 0), nx(16, 0);
    TlvTableBadOptLen, "NXTTMFC_BAD_OPT_LEN", nx(1, 528), nx(17, 0), nx(17, 0), nx(17, 0);
    TlvTableBadFieldIdx, "NXTTMFC_BAD_FIELD_IDX", nx(1, 529), nx(18, 0), nx(18, 0), nx(18, 0);
    TlvTableTableFull, "NXTTMFC_TABLE_FULL", nx(1, 530), nx(19, 0), nx(19, 0), nx(19, 0);
    TlvTableAlreadyMapped, "NXTTMFC_ALREADY_MAPPED", nx(1, 531), nx(20, 0), nx(20, 0), nx(20, 0);
    TlvTableDupEntry, "NXTTMFC_DUP_ENTRY", nx(1, 532), nx(21, 0), nx(21, 0), nx(21, 0);
    TlvTableInvalidTlvDel, "NXTTMFC_INVALID_TLV_DEL", nx(1, 537), nx(38, 0), nx(38, 0), nx(38, 0);
}

impl ErrorCode {
    /// Returns the numbers of the error in a version; `None` if the version has none for it.
    pub fn numbers(self, version: Version) -> Option<ErrorNumbers> {
        self.all_numbers()[version.index()]
    }

    /// Returns the error that has these numbers in a version. Of several that share them, the first in the list.
    pub fn of_numbers(version: Version, numbers: ErrorNumbers) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.numbers(version) == Some(numbers))
    }
}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::error::Error for ErrorCode {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_numbers_in_some_version() {
        for code in ErrorCode::ALL {
            assert!(Version::ALL.iter().any(|version| code.numbers(*version).is_some()), "{code}");
        }
        let bad_type = ErrorCode::RequestBadType.numbers(Version::OpenFlow15);
        assert_eq!(bad_type, std(1, 1));
        assert_eq!(
            ErrorCode::of_numbers(Version::OpenFlow13, std(3, 5).unwrap()),
            Some(ErrorCode::InstructionBadExperimenter)
        );
    }
}
