//! The state of the connections with OpenFlow controllers, for reports.

use std::sync::{Arc, Mutex, MutexGuard};

use serde::{Deserialize, Serialize};

/// The connections at one of the configured addresses.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ControllerReport {
    /// As in the configuration, with a port.
    pub address: String,
    /// Open connections.
    pub connections: usize,
    /// Connections that have ended before both sides agreed on a version: those that could not be opened, and refused peers of TLS.
    pub failed: u64,
    /// The reason of the latest of these.
    pub last_error: Option<String>,
}

/// An address.
#[derive(Debug, Default)]
pub(crate) struct Controller(Mutex<ControllerReport>);

/// An open connection, which counts until dropped.
#[derive(Debug)]
pub(crate) struct Connected<'a>(&'a Controller);

/// All addresses.
#[derive(Debug, Default)]
pub(crate) struct Controllers(Mutex<Vec<Arc<Controller>>>);

impl Controllers {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Controller>>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(crate) fn add(&self, address: String) -> Arc<Controller> {
        let new = Controller(Mutex::new(ControllerReport { address, ..ControllerReport::default() }));
        let new = Arc::new(new);
        self.lock().push(new.clone());
        new
    }

    pub(crate) fn report(&self) -> Vec<ControllerReport> {
        self.lock().iter().map(|controller| controller.lock().clone()).collect()
    }
}

impl Controller {
    fn lock(&self) -> MutexGuard<'_, ControllerReport> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(crate) fn connected(&self) -> Connected<'_> {
        self.lock().connections += 1;
        Connected(self)
    }

    pub(crate) fn failed(&self, error: String) {
        let mut report = self.lock();
        report.failed += 1;
        report.last_error = Some(error);
    }
}

impl Drop for Connected<'_> {
    fn drop(&mut self) {
        self.0.lock().connections -= 1;
    }
}
