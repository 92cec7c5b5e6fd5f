//! Starts the listener for operators. Not here: its paths (`interlingua_server`).

use std::net::SocketAddr;
use std::sync::Arc;

use super::Running;
use super::live::LiveParts;
use interlingua_base::clock;
use interlingua_base::ports::Reload;
use interlingua_config::keys;
use interlingua_observe::LogFilter;

impl Running {
    /// Serves operators, if the configuration has a listener for them. Returns its address, and the key of this start:
    /// the listener accepts it until the gateway stops or a key is configured. `None`: the configuration asks for
    /// credentials already, a key or certificates.
    ///
    /// # Errors
    /// I/O errors of the listener.
    pub fn serve_admin(
        &mut self,
        reload: Arc<dyn Reload>,
        log: LogFilter,
    ) -> anyhow::Result<Option<(SocketAddr, Option<String>)>> {
        let Some(listener) = self.admin_listener.take() else { return Ok(None) };
        let LiveParts { engine, control, observer, callers, admin_key, admin_access, .. } = self.parts.clone();
        let (key, tls) = (admin_key, self.parts.admin_tls.clone());
        let asks_certificate = tls.as_ref().is_some_and(|tls| tls.load().verifier.is_some());
        let start_key = if key.load().is_none() && !asks_certificate {
            Some(keys::NewKey::generate().map_err(anyhow::Error::msg)?.text)
        } else {
            None
        };

        let admin = interlingua_admin::Admin {
            engine,
            control,
            observer,
            reload,
            log,
            key,
            tls,
            client_url: own_url(self.parts.tls.is_some(), self.address),
            callers,
            access: admin_access,
            start_key: start_key.clone(),
            started: clock::now(),
            agent_api: self.agent_api.clone(),
        };
        let admin = interlingua_admin::listen(listener, admin)?;
        let address = admin.address;
        self.admin = Some(admin);
        Ok(Some((address, start_key)))
    }
}

/// The URL at which this machine reaches its own listener of clients.
fn own_url(tls: bool, address: SocketAddr) -> String {
    let scheme = if tls { "https" } else { "http" };
    // An unspecified address cannot be connected to.
    let mut shown = address;
    if address.ip().is_unspecified() {
        shown.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
    }
    format!("{scheme}://{shown}")
}
