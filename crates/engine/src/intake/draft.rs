//! Checks one part of a message: what the part claims to be, and whether that is accepted. Does no IO.

use std::path::PathBuf;

use longshore_model::{Error, Part, PartContent, Result};

use super::media_type::{self, FileKind, MediaType};
use super::refusal::{self, size};
use super::{data_url, file_url, remote};
use crate::config::IntakeRules;
use crate::port::{FileSource, Input, InputFile};

/// The longest file name, which is the limit of most file systems. A longer name is cut.
const MAX_NAME_BYTES: usize = 255;

/// A part that has passed all checks that need no file and no hash.
#[derive(Debug)]
pub(super) enum Draft {
    Ready(Input),
    /// Content inside the message, which is hashed next.
    Inline {
        name: Option<String>,
        media_type: String,
        is_text: bool,
        bytes: Vec<u8>,
    },
    /// A workspace file, which is found, read and hashed next.
    File(FileDraft),
}

#[derive(Debug)]
pub(super) struct FileDraft {
    pub(super) field: String,
    pub(super) path: PathBuf,
    pub(super) name: Option<String>,
    /// The type that the caller claims.
    pub(super) claimed: Option<(MediaType, FileKind)>,
}

/// Reads a part. `field`: the name of the part in the caller's request. `None`: the part is blank.
pub(super) fn draft(rules: &IntakeRules, field: String, part: &Part) -> Result<Option<Draft>> {
    Reading { rules, part, field }.draft()
}

/// The last component of the caller's file name, without control characters. `None`: nothing is left.
pub(super) fn plain_name(name: &str) -> Option<String> {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let mut plain: String = last.chars().filter(|c| !c.is_control()).collect();
    plain.truncate(plain.floor_char_boundary(MAX_NAME_BYTES));
    let plain = plain.trim();
    (!matches!(plain, "" | "." | "..")).then(|| plain.to_owned())
}

/// One part and the name of its field for error messages.
struct Reading<'a> {
    rules: &'a IntakeRules,
    part: &'a Part,
    field: String,
}

impl Reading<'_> {
    fn draft(&self) -> Result<Option<Draft>> {
        let draft = match &self.part.content {
            PartContent::Text(text) if text.trim().is_empty() => {
                self.check_text_type()?;
                return Ok(None);
            }
            PartContent::Text(text) => self.text(text)?,
            PartContent::Data(data) => self.data(data.get())?,
            PartContent::Raw(bytes) => {
                let media_type = self.claimed()?.unwrap_or_else(|| MediaType::of(media_type::BYTES));
                self.inline(&media_type, bytes.clone())?
            }
            PartContent::Url(url) => self.url(url)?,
        };
        Ok(Some(draft))
    }

    fn text(&self, text: &str) -> Result<Draft> {
        self.check_text_type()?;
        self.check_text_size(text.len() as u64)?;
        Ok(Draft::Ready(Input::Text(text.to_owned())))
    }

    fn check_text_type(&self) -> Result<()> {
        match self.claimed()? {
            Some(media_type) if media_type.kind(self.rules) != Some(FileKind::Text) => {
                Err(self.not_accepted(&format!("a text part cannot be {}", media_type.essence)))
            }
            _ => Ok(()),
        }
    }

    /// A data part: the agent gets the JSON text that the caller sent.
    fn data(&self, json: &str) -> Result<Draft> {
        if !self.rules.data_parts {
            return Err(self.not_accepted("data parts are not taken here; send the JSON as text"));
        }
        if let Some(media_type) = self.claimed()?
            && !media_type.is_json()
        {
            return Err(
                self.not_accepted(&format!("a data part is JSON and cannot be {}", media_type.essence))
            );
        }
        self.check_text_size(json.len() as u64)?;
        Ok(Draft::Ready(Input::Text(json.to_owned())))
    }

    fn inline(&self, media_type: &MediaType, bytes: Vec<u8>) -> Result<Draft> {
        let kind = self.kind(media_type)?;
        match kind {
            FileKind::Text => {
                self.check_text_size(bytes.len() as u64)?;
                if str::from_utf8(&bytes).is_err() {
                    return Err(self.not_utf8());
                }
            }
            FileKind::Media if bytes.len() as u64 > self.rules.max_inline_bytes => {
                return Err(self.invalid(format!(
                    "is larger than {}, the most for a file that comes with the message; put it in the workspace \
                     and send its file:// URL",
                    size(self.rules.max_inline_bytes)
                )));
            }
            FileKind::Media => {}
        }
        Ok(Draft::Inline {
            name: self.name(),
            media_type: media_type.essence.clone(),
            is_text: kind == FileKind::Text,
            bytes,
        })
    }

    fn url(&self, url: &str) -> Result<Draft> {
        let (scheme, rest) = url.split_once(':').unwrap_or_default();
        match scheme.to_ascii_lowercase().as_str() {
            "data" => self.data_url(rest),
            "file" => {
                let path = file_url::parse(rest).map_err(|text| self.invalid(text))?;
                let claimed = match self.claimed()? {
                    Some(media_type) => Some((media_type.clone(), self.kind(&media_type)?)),
                    None => None,
                };
                Ok(Draft::File(FileDraft { field: self.field.clone(), path, name: self.name(), claimed }))
            }
            "http" | "https" => self.remote(url),
            _ => Err(self.invalid(
                "the URL is of a kind that is not taken; send a data: URL, the file:// URL of a file in the workspace, or the \
                 file itself in the part",
            )),
        }
    }

    /// A `data:` URL is treated like raw bytes: only the way of writing them differs.
    fn data_url(&self, rest: &str) -> Result<Draft> {
        let url = data_url::parse(rest).map_err(|text| self.invalid(text))?;
        let own = url.media_type.as_deref().map(|text| self.media_type(text)).transpose()?;
        let media_type = match (self.claimed()?, own) {
            (Some(claimed), Some(own)) if claimed.essence != own.essence => {
                return Err(self.invalid(
                    "the media type of the part and that of its data: URL differ; leave one of them out",
                ));
            }
            // Both types may name a charset. If one of them is not UTF-8, this picks that type, so that `inline` refuses the part.
            (Some(claimed), Some(own)) => {
                if claimed.is_utf8() {
                    own
                } else {
                    claimed
                }
            }
            (Some(one), None) | (None, Some(one)) => one,
            // RFC 2397: content without a media type is plain text.
            (None, None) => MediaType::of(media_type::PLAIN_TEXT),
        };
        self.inline(&media_type, url.bytes)
    }

    fn remote(&self, url: &str) -> Result<Draft> {
        let url = remote::admit(url, &self.rules.remote_hosts).map_err(|text| self.invalid(text))?;
        let media_type = self.claimed()?.ok_or_else(|| {
            self.invalid(
                "has no media type; say with mediaType what the file is, as the gateway does not fetch it",
            )
        })?;
        let is_text = self.kind(&media_type)? == FileKind::Text;
        Ok(Draft::Ready(Input::File(InputFile {
            name: self.name(),
            media_type: media_type.essence,
            is_text,
            source: FileSource::Remote(url),
            content: None,
        })))
    }

    /// The media type that the part names.
    fn claimed(&self) -> Result<Option<MediaType>> {
        let text = self.part.media_type.as_deref().filter(|text| !text.trim().is_empty());
        text.map(|text| self.media_type(text)).transpose()
    }

    fn media_type(&self, text: &str) -> Result<MediaType> {
        MediaType::parse(text).ok_or_else(|| {
            self.not_accepted("the media type cannot be read; write one such as text/plain or image/png")
        })
    }

    fn kind(&self, media_type: &MediaType) -> Result<FileKind> {
        let kind = media_type.kind(self.rules).ok_or_else(|| {
            self.not_accepted(&format!(
                "files of the type {} are not taken; these are: {}",
                media_type.essence,
                media_type::accepted(self.rules)
            ))
        })?;
        if kind == FileKind::Text && !media_type.is_utf8() {
            return Err(self.not_utf8());
        }
        Ok(kind)
    }

    fn name(&self) -> Option<String> {
        self.part.filename.as_deref().and_then(plain_name)
    }

    fn check_text_size(&self, bytes: u64) -> Result<()> {
        if bytes > self.rules.max_text_bytes {
            Err(refusal::text_too_large(&self.field, self.rules))
        } else {
            Ok(())
        }
    }

    fn invalid(&self, text: impl Into<String>) -> Error {
        Error::invalid(&self.field, text)
    }

    fn not_utf8(&self) -> Error {
        refusal::not_utf8(&self.field)
    }

    fn not_accepted(&self, text: &str) -> Error {
        refusal::not_accepted(&self.field, text, self.rules)
    }
}
