#pragma once
// SQLite as the tuning database uses it: one connection, its statements, and errors that say what to do.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

struct sqlite3;
struct sqlite3_stmt;

namespace tilewright::sqlite {

class Connection;

/// A statement between its start and its end. Parameters are ?1, ?2, ...; columns count from 0. Reset when it goes.
class Statement {
  public:
    ~Statement();
    Statement(const Statement&) = delete;
    Statement& operator=(const Statement&) = delete;

    /// The text must outlive the statement.
    Statement& bind(int parameter, std::string_view text);
    Statement& bind(int parameter, int64_t number);
    Statement& bind(int parameter, double number);
    Statement& bind_blob(int parameter, std::string_view bytes);

    bool step();  ///< true: there is a row; false: it has ended
    void run();   ///< step() of a statement without rows

    std::string text(int column) const;
    int64_t integer(int column) const;
    double number(int column) const;

  private:
    friend class Connection;
    Statement(const Connection& connection, sqlite3_stmt* statement) : connection_(connection), statement_(statement) {}
    void check(int code) const;
    const Connection& connection_;
    sqlite3_stmt* statement_;
};

/// Everything throws RuntimeError naming the file.
class Connection {
  public:
    /// `busy_seconds`: how long to wait for locks of other processes.
    Connection(std::string path, bool read_only, int busy_seconds);
    ~Connection();
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    /// Prepared at the first time, kept for the next. Not to be asked for again while it runs.
    Statement query(const std::string& sql) const;
    void run(const std::string& sql) const { query(sql).run(); }
    /// The first column of the first row; 0 without a row.
    int64_t integer(const std::string& sql) const;
    /// Changes the journal to a write-ahead log. SQLite does not wait for others here, so this does.
    void use_write_ahead_log() const;

    int64_t changes() const;  ///< rows that the last statement changed
    const std::string& path() const { return path_; }
    [[noreturn]] void fail(int code, const std::string& message) const;
    [[noreturn]] void damaged(const std::string& how) const;

  private:
    friend class Statement;
    bool is_full(int code) const;  ///< whether the call that gave `code` could not write
    std::string path_;
    int busy_seconds_;
    sqlite3* handle_ = nullptr;
    mutable std::map<std::string, sqlite3_stmt*> statements_;
};

/// Rolled back unless committed. `write`: takes the one writer's place at once.
class Transaction {
  public:
    Transaction(const Connection& connection, bool write);
    ~Transaction();
    Transaction(const Transaction&) = delete;
    Transaction& operator=(const Transaction&) = delete;
    void commit();

  private:
    const Connection& connection_;
    bool open_ = true;
};

}  // namespace tilewright::sqlite
