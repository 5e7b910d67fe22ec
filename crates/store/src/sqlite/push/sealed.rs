//! Finds and replaces all sealed values of a store when the keys are rotated.

use std::path::Path;

use longshore_model::Result;
use longshore_seal::{SealedValue, SealedValues, StoreFailure};
use rusqlite::{Connection, TransactionBehavior};

use super::super::Durability;
use super::super::fault::Outcome;
use super::super::schema;
use super::record;

/// The sealed secrets of a store that no gateway has open.
#[derive(Debug)]
pub struct StoredSecrets(Connection);

impl StoredSecrets {
    pub fn open(path: &Path) -> Result<Self> {
        // Use `Power`, because the rotation then removes old keys, so the new values must survive a loss of power.
        schema::open_writer(path, Durability::Power).map(Self)
    }

    fn replace(&mut self, reseal: &mut dyn FnMut(SealedValue<'_>) -> Option<Vec<u8>>) -> Outcome<()> {
        let transaction = self.0.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let rows: Vec<(i64, String, String, Vec<u8>)> = transaction
            .prepare(
                "SELECT push_configs.ordinal, tasks.id, push_configs.id, sealed
                 FROM push_configs JOIN tasks ON tasks.ordinal = task",
            )?
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?
            .collect::<rusqlite::Result<_>>()?;
        for (ordinal, task, id, sealed) in rows {
            let context = record::context(&task, &id);
            if let Some(again) = reseal(SealedValue { context: &context, sealed: &sealed }) {
                transaction
                    .prepare_cached("UPDATE push_configs SET sealed = ?2 WHERE ordinal = ?1")?
                    .execute((ordinal, again))?;
            }
        }
        Ok(transaction.commit()?)
    }
}

impl SealedValues for StoredSecrets {
    fn replace_each(
        &mut self,
        reseal: &mut dyn FnMut(SealedValue<'_>) -> Option<Vec<u8>>,
    ) -> std::result::Result<(), StoreFailure> {
        self.replace(reseal).map_err(|fault| StoreFailure::from(fault.0))
    }
}
