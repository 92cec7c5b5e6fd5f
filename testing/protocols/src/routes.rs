//! The routes of a gateway that serves every protocol, at the paths of the registry.
//!
//! Constants, because hundreds of tests name them in format strings.

use crate::rows::PROTOCOLS;

/// The parts of a route's table before and after the name, and after the path.
const PARTS: [&str; 3] = ["[[routes]]\nprotocol = \"", "\"\npath = \"", "\"\n"];

/// The finished protocols that serve clients, each with the path of its route.
pub const MOUNTS: &[(&str, &str)] = &MOUNTED;

/// The configuration of these routes.
pub const ROUTES: &str = match str::from_utf8(&WRITTEN) {
    Ok(routes) => routes,
    Err(_) => panic!("names and paths are UTF-8"),
};

const MOUNTED: [(&str, &str); count()] = {
    let mut mounted = [("", ""); count()];
    let (mut row, mut next) = (0, 0);
    while row < PROTOCOLS.len() {
        if let (true, Some(serves)) = (PROTOCOLS[row].is_finished, &PROTOCOLS[row].serves) {
            mounted[next] = (PROTOCOLS[row].name, serves.path);
            next += 1;
        }
        row += 1;
    }
    mounted
};

const WRITTEN: [u8; length()] = {
    let (mut text, mut end) = ([0; length()], 0);
    let mut place = 0;
    while place < MOUNTED.len() {
        let (name, path) = MOUNTED[place];
        let parts = [PARTS[0], name, PARTS[1], path, PARTS[2]];
        let mut part = 0;
        while part < parts.len() {
            let (bytes, mut at) = (parts[part].as_bytes(), 0);
            while at < bytes.len() {
                text[end] = bytes[at];
                end += 1;
                at += 1;
            }
            part += 1;
        }
        place += 1;
    }
    text
};

const fn count() -> usize {
    let (mut row, mut found) = (0, 0);
    while row < PROTOCOLS.len() {
        found += (PROTOCOLS[row].is_finished && PROTOCOLS[row].serves.is_some()) as usize;
        row += 1;
    }
    found
}

const fn length() -> usize {
    let mut length = MOUNTED.len() * (PARTS[0].len() + PARTS[1].len() + PARTS[2].len());
    let mut place = 0;
    while place < MOUNTED.len() {
        length += MOUNTED[place].0.len() + MOUNTED[place].1.len();
        place += 1;
    }
    length
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_routes_are_those_of_the_rows() {
        let expected: String = MOUNTS
            .iter()
            .map(|(name, path)| format!("[[routes]]\nprotocol = \"{name}\"\npath = \"{path}\"\n"))
            .collect();
        assert_eq!(ROUTES, expected);
        assert_eq!(MOUNTS.len(), crate::served().count());
    }
}
