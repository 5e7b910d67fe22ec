//! Serves the metrics page, for programs such as Prometheus that read it at intervals.

use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use longshore_engine::Engine;
use longshore_meter::process::Process;
use longshore_meter::{self as meter, Metrics};
use longshore_model::{Error, ErrorKind, Result};

use crate::EdgeConfig;
use crate::reply::{self, Body, Response};

#[derive(Debug)]
pub(crate) struct MetricsPage {
    /// The metrics. `None`: the metrics page is disabled.
    metrics: Option<Arc<Metrics>>,
    engine: Engine,
}

impl MetricsPage {
    pub(crate) fn new(config: &EdgeConfig, engine: Engine) -> Self {
        Self { metrics: config.deployment.metrics.then(|| Arc::clone(&config.metrics)), engine }
    }

    /// The metrics. If the page is disabled, fails as if the path did not exist, for every verb.
    pub(crate) fn served(&self) -> Result<&Metrics> {
        let off = || Error::new(ErrorKind::RouteNotFound, "The metrics of this gateway are switched off.");
        self.metrics.as_deref().ok_or_else(off)
    }

    /// Renders the current page, after updating the gauges that are computed on demand.
    pub(crate) fn answer(&self) -> Result<Response> {
        let metrics = self.served()?;
        self.engine.update_gauges();
        metrics.note_process(&Process::read());
        let mut page = String::new();
        metrics.render(&mut page);
        let mut response = reply::empty(StatusCode::OK);
        *response.body_mut() = Body::Full(Bytes::from(page));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(meter::CONTENT_TYPE));
        Ok(response)
    }
}
