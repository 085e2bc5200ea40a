//! The reference: pages made from the schema of configurations and the tables of fields and actions.

mod config;
mod flows;
mod page;

use flowlane_switch::mgmt::config::Config;

pub(crate) use page::Page;

/// All pages.
pub(crate) fn pages() -> [Page; 2] {
    [config::page(schemars::schema_for!(Config).as_value()), flows::page()]
}
