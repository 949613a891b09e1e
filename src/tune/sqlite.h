#pragma once
// A wrapper of SQLite for the tuning database: one connection, its statements, and errors with remedies.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

struct sqlite3;
struct sqlite3_stmt;

namespace tilewright::sqlite {

class Connection;

/// A running statement. Parameters are ?1, ?2, ...; columns count from 0. Reset by the destructor.
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

/// Every method throws a RuntimeError that names the file.
class Connection {
  public:
    /// `busy_seconds`: timeout for locks of other processes.
    Connection(std::string path, bool read_only, int busy_seconds);
    ~Connection();
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    /// Prepared once and cached. Not reentrant: one use of a statement at a time.
    Statement query(const std::string& sql) const;
    void run(const std::string& sql) const { query(sql).run(); }
    /// The first column of the first row; 0 without a row.
    int64_t integer(const std::string& sql) const;
    /// Changes the journal to a write-ahead log. SQLite does not wait for locks in this case, so this function does.
    void use_write_ahead_log() const;

    int64_t changes() const;  ///< rows that the last statement changed
    const std::string& path() const { return path_; }
    [[noreturn]] void fail(int code, const std::string& message) const;
    [[noreturn]] void damaged(const std::string& how) const;

  private:
    friend class Statement;
    bool is_full(int code) const;  ///< true if the call that returned `code` failed because nothing could be written
    std::string path_;
    int busy_seconds_;
    sqlite3* handle_ = nullptr;
    mutable std::map<std::string, sqlite3_stmt*> statements_;
};

/// Rolled back unless committed. `write`: acquires the write lock at once.
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
