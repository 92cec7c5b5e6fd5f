//! Counts the bytes that a connector buffers until more of an answer arrives. This count is their only limit.

use interlingua_core::fault::{Fault, FaultKind};

/// Maximum number of buffered bytes.
const MAX_HELD: usize = 32 << 20;

/// Counts the bytes that one turn buffers: media in pieces, sources, outputs of tools.
///
/// ```
/// use interlingua_adapter_kit::held::BufferedBytes;
///
/// let mut held = BufferedBytes::default();
/// assert!(held.add(1000).is_ok());
/// assert!(held.add(usize::MAX).is_err());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BufferedBytes(usize);

impl BufferedBytes {
    /// Counts further bytes.
    ///
    /// # Errors
    /// [`FaultKind::UpstreamTooLarge`] beyond 32 MiB.
    pub fn add(&mut self, bytes: usize) -> Result<(), Fault> {
        self.0 = self.0.saturating_add(bytes);
        if self.0 > MAX_HELD {
            return Err(Fault::new(FaultKind::UpstreamTooLarge, "the answer is larger than a run may be").with_detail(
                format_args!("more than {MAX_HELD} bytes of it can only be passed on when they are complete"),
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buffered_size_is_limited() {
        let mut held = BufferedBytes::default();
        assert!(held.add(MAX_HELD).is_ok());
        assert_eq!(held.add(1).map_err(|fault| fault.kind), Err(FaultKind::UpstreamTooLarge));
        assert!(held.add(usize::MAX).is_err(), "and does not wrap");
    }
}
