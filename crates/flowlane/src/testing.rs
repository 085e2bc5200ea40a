//! Where tests find data that is too large for the repository, and programs that they compare with.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The folder of such data; `../shared/data` beside the checkout where nothing else is said.
pub const DATA_VARIABLE: &str = "FLOWLANE_TEST_DATA";

/// Where this is 1 a test fails, and does not skip, without its data. Set in CI where there is any.
pub const REQUIRE_VARIABLE: &str = "FLOWLANE_REQUIRE_DATA";

/// A file or a folder of the data, by its path in there; none, and a line that says so, where it is not there.
///
/// # Panics
/// Where it is not there and [`REQUIRE_VARIABLE`] asks for it.
pub fn data(path: impl AsRef<Path>) -> Option<PathBuf> {
    let beside = || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data"));
    let found = std::env::var_os(DATA_VARIABLE).map_or_else(beside, PathBuf::from).join(path);
    if found.exists() {
        return Some(found);
    }
    let required = std::env::var_os(REQUIRE_VARIABLE).is_some_and(|value| value == "1");
    assert!(!required, "{REQUIRE_VARIABLE}=1, but there is no {}", found.display());
    println!("skipped: there is no {}", found.display());
    None
}

/// Lets a command find the libraries of packages that were unpacked into a folder.
pub fn find_libraries(command: &mut Command, root: &Path) {
    if root != Path::new("/") {
        let folders = ["usr/lib", "lib"].map(|lib| root.join(lib));
        let inner = folders.iter().filter_map(|lib| lib.read_dir().ok()).flatten().flatten();
        let libraries = inner.map(|e| e.path()).filter(|p| p.to_string_lossy().ends_with("-linux-gnu"));
        command.env("LD_LIBRARY_PATH", std::env::join_paths(libraries).expect("no colons in paths"));
    }
}

/// Where the packages of Open vSwitch were unpacked, if not into the system.
pub const OVS_ROOT_VARIABLE: &str = "FLOWLANE_OVS_ROOT";

/// Where this is 1 a test fails, and does not skip, without Open vSwitch. Set in CI where it is installed.
pub const REQUIRE_OVS_VARIABLE: &str = "FLOWLANE_REQUIRE_OVS";

/// The programs of Open vSwitch, and what they need to run.
#[derive(Clone, Debug)]
pub struct OvsPrograms {
    root: PathBuf,
}

impl OvsPrograms {
    /// The programs, if they are here; says that it skipped where they are not.
    ///
    /// # Panics
    /// Where they are missing and [`REQUIRE_OVS_VARIABLE`] asks for them.
    pub fn find() -> Option<Self> {
        let root = std::env::var_os(OVS_ROOT_VARIABLE).map_or_else(|| PathBuf::from("/"), PathBuf::from);
        let programs = Self { root };
        let wanted = ["ovsdb-tool", "ovsdb-server", "ovs-vsctl", "ovs-vswitchd", "ovs-ofctl"];
        let missing: Vec<&str> =
            wanted.into_iter().filter(|name| programs.find_program(name).is_none()).collect();
        if missing.is_empty() && programs.schema().exists() {
            return Some(programs);
        }
        let root = programs.root.display();
        let required = std::env::var(REQUIRE_OVS_VARIABLE).is_ok_and(|value| value == "1");
        assert!(!required, "{REQUIRE_OVS_VARIABLE}=1, but Open vSwitch is not in {root}: {missing:?}");
        println!("skipped: there is no Open vSwitch in {root} (apt-get install openvswitch-switch)");
        None
    }

    fn find_program(&self, program: &str) -> Option<PathBuf> {
        // Debian's daemon is made known under /usr/sbin only when the package is configured.
        let folders = ["usr/sbin", "usr/bin", "usr/lib/openvswitch-switch"];
        folders.iter().map(|folder| self.root.join(folder).join(program)).find(|path| path.exists())
    }

    /// The path of a program.
    ///
    /// # Panics
    /// Where it is not one of those that [`find`](Self::find) looks for.
    pub fn path(&self, program: &str) -> PathBuf {
        self.find_program(program).expect("looked for before")
    }

    /// The schema of the database.
    pub fn schema(&self) -> PathBuf {
        self.root.join("usr/share/openvswitch/vswitch.ovsschema")
    }

    /// A command that keeps to `folder` whatever it is to find or write.
    pub fn command(&self, program: &str, folder: &Path) -> Command {
        let mut command = Command::new(self.path(program));
        self.surround(&mut command, folder);
        command
    }

    /// Lets a command find the programs' libraries, and keep to `folder`.
    pub fn surround(&self, command: &mut Command, folder: &Path) {
        for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
            command.env(variable, folder);
        }
        find_libraries(command, &self.root);
    }

    /// Runs a program to its end, `input` being what it reads.
    ///
    /// # Errors
    /// Where it does not start or fails, with what it says.
    pub fn run(
        &self,
        program: &str,
        folder: &Path,
        arguments: &[&str],
        input: &str,
    ) -> Result<String, String> {
        let Output { status, stdout, stderr } = self.output(program, folder, arguments, input)?;
        match status.success() {
            true => Ok(String::from_utf8_lossy(&stdout).into_owned()),
            false => Err(format!("{program} {}: {}", arguments.join(" "), String::from_utf8_lossy(&stderr))),
        }
    }

    /// Runs a program to its end, and returns everything that it writes.
    ///
    /// # Errors
    /// Where it does not start.
    pub fn output(
        &self,
        program: &str,
        folder: &Path,
        arguments: &[&str],
        input: &str,
    ) -> Result<Output, String> {
        let mut command = self.command(program, folder);
        let piped =
            command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().map_err(|error| format!("{program}: {error}"))?;
        // One that has ended says why on its standard error.
        let _ = child.stdin.take().expect("piped").write_all(input.as_bytes());
        child.wait_with_output().map_err(|error| format!("{program}: {error}"))
    }
}
