//! A real gateway whose store fails: the disk is full, or the database file is locked, read-only or damaged. Also: backups
//! that are taken while the store is written.

mod backup;
mod damaged;
mod damaged_files;
mod damaged_gateways;
mod data_dir;
mod disk_full;
mod gateway;
mod locked;
mod read_only;
mod refusals;
mod small_disk;
