//! Explicit congestion notification at a tunnel's end (RFC 6040 §4.2).

use super::Refused;

/// Not capable of it, capable (two codepoints), congestion experienced (RFC 3168 §5).
const NOT_ECT: u8 = 0;
const ECT_1: u8 = 1;
const ECT_0: u8 = 2;
const CE: u8 = 3;

/// Returns the ECN bits of a decapsulated packet, from its own and those of the outer header.
///
/// # Errors
/// Where congestion was experienced and the packet cannot say so: it must be dropped.
pub fn decapsulated_ecn(inner: u8, outer: u8) -> Result<u8, Refused> {
    match (inner & 3, outer & 3) {
        (NOT_ECT, CE) => Err(Refused::EcnNotCapable),
        (NOT_ECT, _) => Ok(NOT_ECT),
        (_, CE) => Ok(CE),
        // Of ECT the outer header may say which: RFC 8311 gives the two different meanings.
        (ECT_0, ECT_1) => Ok(ECT_1),
        (inner, _) => Ok(inner),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_rows_are_those_of_the_standard() {
        // By inner (rows) and outer (columns): Not-ECT, ECT(0), ECT(1), CE. 9: drop.
        let columns = [NOT_ECT, ECT_0, ECT_1, CE];
        let rows =
            [(NOT_ECT, [0, 0, 0, 9]), (ECT_0, [2, 2, 1, 3]), (ECT_1, [1, 1, 1, 3]), (CE, [3, 3, 3, 3])];
        for (inner, wanted) in rows {
            for (outer, wanted) in columns.into_iter().zip(wanted) {
                let found = decapsulated_ecn(inner, outer);
                assert_eq!(found.unwrap_or(9), wanted, "{inner} in {outer}");
            }
        }
    }
}
