//! The numbers of messages in the versions (OpenFlow 1.0 5.1, 1.3.5 7.1, 1.4.1 7.1, 1.5.1 7.1).

use crate::version::Version;

macro_rules! kinds {
    ($($kind:ident $v10:expr, $v13:expr, $v14:expr, $v15:expr;)*) => {
        /// A type of message.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(super) enum Kind { $($kind,)* }

        impl Kind {
            const ALL: &[Kind] = &[$(Self::$kind,)*];

            const fn numbers(self) -> [Option<u8>; 4] {
                match self { $(Self::$kind => [$v10, $v13, $v14, $v15],)* }
            }
        }
    };
}

const fn n(number: u8) -> Option<u8> {
    Some(number)
}

const NONE: Option<u8> = None;

#[rustfmt::skip]
kinds! {
    Hello n(0), n(0), n(0), n(0);
    Error n(1), n(1), n(1), n(1);
    EchoRequest n(2), n(2), n(2), n(2);
    EchoReply n(3), n(3), n(3), n(3);
    Experimenter n(4), n(4), n(4), n(4);
    FeaturesRequest n(5), n(5), n(5), n(5);
    FeaturesReply n(6), n(6), n(6), n(6);
    GetConfigRequest n(7), n(7), n(7), n(7);
    GetConfigReply n(8), n(8), n(8), n(8);
    SetConfig n(9), n(9), n(9), n(9);
    PacketIn n(10), n(10), n(10), n(10);
    FlowRemoved n(11), n(11), n(11), n(11);
    PortStatus n(12), n(12), n(12), n(12);
    PacketOut n(13), n(13), n(13), n(13);
    FlowMod n(14), n(14), n(14), n(14);
    GroupMod NONE, n(15), n(15), n(15);
    PortMod n(15), n(16), n(16), n(16);
    TableMod NONE, n(17), n(17), n(17);
    MultipartRequest n(16), n(18), n(18), n(18);
    MultipartReply n(17), n(19), n(19), n(19);
    BarrierRequest n(18), n(20), n(20), n(20);
    BarrierReply n(19), n(21), n(21), n(21);
    QueueGetConfigRequest n(20), n(22), NONE, NONE;
    QueueGetConfigReply n(21), n(23), NONE, NONE;
    RoleRequest NONE, n(24), n(24), n(24);
    RoleReply NONE, n(25), n(25), n(25);
    GetAsyncRequest NONE, n(26), n(26), n(26);
    GetAsyncReply NONE, n(27), n(27), n(27);
    SetAsync NONE, n(28), n(28), n(28);
    MeterMod NONE, n(29), n(29), n(29);
    RoleStatus NONE, NONE, n(30), n(30);
    TableStatus NONE, NONE, n(31), n(31);
    BundleControl NONE, NONE, n(33), n(33);
    BundleAdd NONE, NONE, n(34), n(34);
}

impl Kind {
    /// Returns the type with this number.
    pub(super) fn of_number(version: Version, number: u8) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.number(version) == Some(number))
    }

    /// The number in a version, if it has the message.
    pub(super) fn number(self, version: Version) -> Option<u8> {
        self.numbers()[version.index()]
    }
}
