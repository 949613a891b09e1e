#include "tune/sqlite.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <chrono>
#include <thread>

#include "base/error.h"
#include "base/file_size_signal.h"
#include "tune/database.h"

namespace tilewright::sqlite {

// --- Statement

Statement::~Statement() {
    sqlite3_reset(statement_);
    sqlite3_clear_bindings(statement_);
}

void Statement::check(int code) const {
    if (code != SQLITE_OK) connection_.fail(code, sqlite3_errmsg(connection_.handle_));
}

Statement& Statement::bind(int parameter, std::string_view text) {
    // A null pointer would bind NULL.
    const char* data = text.data() != nullptr ? text.data() : "";
    check(sqlite3_bind_text64(statement_, parameter, data, text.size(), SQLITE_STATIC, SQLITE_UTF8));
    return *this;
}

Statement& Statement::bind(int parameter, int64_t number) {
    check(sqlite3_bind_int64(statement_, parameter, number));
    return *this;
}

Statement& Statement::bind(int parameter, double number) {
    check(sqlite3_bind_double(statement_, parameter, number));
    return *this;
}

Statement& Statement::bind_blob(int parameter, std::string_view bytes) {
    check(sqlite3_bind_blob64(statement_, parameter, bytes.data(), bytes.size(), SQLITE_STATIC));
    return *this;
}

bool Statement::step() {
    const NoFileSizeSignal guard;
    const int code = sqlite3_step(statement_);
    if (code == SQLITE_ROW) return true;
    if (code != SQLITE_DONE) connection_.fail(code, sqlite3_errmsg(connection_.handle_));
    return false;
}

void Statement::run() {
    while (step()) {
    }
}

std::string Statement::text(int column) const {
    const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
    if (bytes == nullptr) return "";
    return {bytes, static_cast<size_t>(sqlite3_column_bytes(statement_, column))};
}

int64_t Statement::integer(int column) const { return sqlite3_column_int64(statement_, column); }

double Statement::number(int column) const { return sqlite3_column_double(statement_, column); }

// --- Connection

Connection::Connection(std::string path, bool read_only, int busy_seconds)
    : path_(std::move(path)), busy_seconds_(busy_seconds) {
    const NoFileSizeSignal guard;
    // The owner's lock serialises calls, so SQLite's own mutex is not needed.
    const int flags =
        (read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE) | SQLITE_OPEN_NOMUTEX;
    const int code = sqlite3_open_v2(path_.c_str(), &handle_, flags, nullptr);
    if (code != SQLITE_OK) {
        const std::string message = handle_ != nullptr ? sqlite3_errmsg(handle_) : "out of memory";
        const bool full = is_full(code);
        sqlite3_close(handle_);
        handle_ = nullptr;
        fail(full ? SQLITE_FULL : code, message);
    }
    sqlite3_busy_timeout(handle_, busy_seconds * 1000);
}

Connection::~Connection() {
    const NoFileSizeSignal guard;  // the last connection moves the log into the file
    for (const auto& [sql, statement] : statements_) sqlite3_finalize(statement);
    sqlite3_close(handle_);
}

Statement Connection::query(const std::string& sql) const {
    const auto [entry, added] = statements_.try_emplace(sql, nullptr);
    if (entry->second == nullptr) {
        const int code =
            sqlite3_prepare_v3(handle_, sql.c_str(), -1, SQLITE_PREPARE_PERSISTENT, &entry->second, nullptr);
        if (code != SQLITE_OK) fail(code, sqlite3_errmsg(handle_));
    }
    return {*this, entry->second};
}

int64_t Connection::integer(const std::string& sql) const {
    Statement statement = query(sql);
    return statement.step() ? statement.integer(0) : 0;
}

void Connection::use_write_ahead_log() const {
    const NoFileSizeSignal guard;
    using Clock = std::chrono::steady_clock;
    const auto deadline = Clock::now() + std::chrono::seconds(busy_seconds_);
    for (;;) {
        sqlite3_stmt* statement = nullptr;
        int code = sqlite3_prepare_v2(handle_, "PRAGMA journal_mode=WAL", -1, &statement, nullptr);
        if (code == SQLITE_OK) code = sqlite3_step(statement);
        const auto* mode = code == SQLITE_ROW ? sqlite3_column_text(statement, 0) : nullptr;
        const std::string got = mode != nullptr ? reinterpret_cast<const char*>(mode) : "";
        const std::string message = sqlite3_errmsg(handle_);
        sqlite3_finalize(statement);
        if (got == "wal") return;
        if (code == SQLITE_ROW)
            throw RuntimeError(
                fmt::format("tuning database {}: its file system allows no write-ahead log; choose a "
                            "file on a local disk",
                            path_));
        if ((code & 0xff) != SQLITE_BUSY || Clock::now() > deadline) fail(code, message);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
}

bool Connection::is_full(int code) const {
    if ((code & 0xff) == SQLITE_FULL) return true;
    if ((code & 0xff) != SQLITE_IOERR || handle_ == nullptr) return false;
    switch (sqlite3_extended_errcode(handle_)) {  // SQLite usually does not report the system error
        case SQLITE_IOERR_WRITE:
        case SQLITE_IOERR_FSYNC:
        case SQLITE_IOERR_TRUNCATE:
        case SQLITE_IOERR_SHMSIZE:
        case SQLITE_IOERR_SHMMAP:
            return true;
        default:
            return false;
    }
}

int64_t Connection::changes() const { return sqlite3_changes64(handle_); }

void Connection::damaged(const std::string& how) const {
    throw RuntimeError(
        fmt::format("tuning database {} is damaged ({}): save what can be read with `tilewright db "
                    "export`, then move the file away with its -wal and -shm; tuning makes a new one",
                    path_, how));
}

void Connection::fail(int code, const std::string& message) const {
    if (is_full(code))
        throw CannotKeep(
            fmt::format("tuning database {}: the disk is full, a file size limit is reached, or the disk fails", path_),
            true);
    switch (code & 0xff) {  // the higher bits are details
        case SQLITE_NOTADB:
            throw RuntimeError(
                fmt::format("{} is not a tuning database ({}): move it away, or name another file", path_, message));
        case SQLITE_CORRUPT:
        case SQLITE_TOOBIG:  // a length of gigabytes: a corrupt file
            damaged(message);
        case SQLITE_BUSY:
        case SQLITE_LOCKED:
            throw RuntimeError(
                fmt::format("tuning database {}: another process kept it locked for {} s; try again "
                            "when that is done",
                            path_, busy_seconds_));
        case SQLITE_CANTOPEN:
        case SQLITE_PERM:
        case SQLITE_READONLY:
            throw CannotKeep(
                fmt::format("tuning database {}: {}; expected a file and a folder that can be written", path_, message),
                false);
        default:
            throw RuntimeError(fmt::format("tuning database {}: {}", path_, message));
    }
}

// --- Transaction

Transaction::Transaction(const Connection& connection, bool write) : connection_(connection) {
    connection_.run(write ? "BEGIN IMMEDIATE" : "BEGIN");
}

Transaction::~Transaction() {
    if (!open_) return;
    try {
        connection_.run("ROLLBACK");
    } catch (const RuntimeError&) {  // NOLINT(bugprone-empty-catch): SQLite has already rolled back
    }
}

void Transaction::commit() {
    connection_.run("COMMIT");
    open_ = false;
}

}  // namespace tilewright::sqlite
