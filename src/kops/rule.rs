//! A row of the table of fields, and what it can do with a field.

/// Documents to which a row applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// Only the Cluster.
    Cluster,
    /// Only instance groups.
    Group,
    /// Every document.
    All,
}

/// What a user has to give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    /// What the value is.
    pub what: &'static str,
    /// An example. `{name}` is the name of the mirror.
    pub example: &'static str,
}

/// What happens to a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Treatment {
    /// The name of the source becomes the name of the mirror. Other values stay.
    Name,
    /// As [`Treatment::Name`]. A value without the name of the source must be given.
    NameOr(Demand),
    /// As [`Treatment::Name`]. A value without the name of the source stays, and the text says what that means.
    NameOrWarn(&'static str),
    /// The value must be given.
    Given(Demand),
    /// The value must be given, unless the mirror is in the VPC of the source.
    GivenInNewVpc(Demand),
    /// The field is removed.
    Removed,
    /// The field is removed, unless the mirror is in the VPC of the source.
    RemovedInNewVpc,
    /// The field is removed if its value starts with one of these.
    RemovedIf(&'static [&'static str]),
    /// The field stays, also if it names something of the source.
    Kept,
    /// A range of addresses. It stays, and the user must check it.
    Range,
    /// Current versions of kOps refuse the field if its value is one of these, or any value if the list is empty.
    Outdated(&'static [&'static str]),
}

/// What the previous value of a field is. The output must not contain it elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Old {
    /// Nothing that identifies the source.
    Plain,
    /// An id, a name or an address in the cloud.
    Id,
    /// A path of a store.
    Store,
    /// A range of addresses.
    Range,
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// The documents.
    pub on: On,
    /// The field, in each spelling. `[]` means each item of a list, `*` each key of a map, and `~` a dot in a key.
    pub paths: &'static [&'static str],
    /// What happens to the field.
    pub treatment: Treatment,
    /// What its previous value is.
    pub old: Old,
    /// The reason.
    pub reason: &'static str,
}
