//! What a bug report needs, in one archive: the report, the traces without what is nobody's business, facts about the machine,
//! and what the tracker asks for that the diagnosis belongs to.

pub mod error;
pub mod issue;
pub mod layout;
pub mod open;
pub mod pack;
pub mod redact;

pub use error::BundleError;
