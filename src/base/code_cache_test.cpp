// Cached machine code is found complete or not at all.

#include "base/code_cache.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <thread>

#include "base/temporary_folder_test.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;

/// The cache's entries, without its key.
std::vector<fs::path> entries(const std::string& folder) {
    std::vector<fs::path> out;
    for (const auto& file : fs::directory_iterator(folder))
        if (file.path().extension() == ".code") out.push_back(file.path());
    return out;
}

mode_t mode_of(const fs::path& path) {
    struct stat s {};
    return ::lstat(path.c_str(), &s) == 0 ? s.st_mode & 07777U : 0;
}

/// The warning of a cache in `folder` after one write and one lookup, which finds nothing.
std::string refusal(const std::string& folder) {
    std::vector<std::string> warnings;
    const CodeCache cache(folder, [&](const std::string& text) { warnings.push_back(text); });
    cache.keep("a text", "code");
    EXPECT_EQ(cache.find("a text"), std::nullopt) << folder;
    cache.keep("another", "code");
    EXPECT_EQ(warnings.size(), 1u) << folder;
    return warnings.empty() ? "" : warnings[0];
}

constexpr uid_t kNobody = 65534;

/// Runs `f` in its own process; true if `f` returns true.
bool in_child(const std::function<bool()>& body) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(body() ? 0 : 1);
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(CodeCache, RejectsCorruptFiles) {
    const TemporaryFolder folder;
    const CodeCache cache(folder.path());
    const std::string code("co\0de", 5);
    cache.keep("a text", code);
    EXPECT_EQ(cache.find("a text"), code);
    EXPECT_EQ(cache.find("another"), std::nullopt);
    ASSERT_EQ(entries(folder.path()).size(), 1u);
    const fs::path file = entries(folder.path())[0];
    const std::string whole = read_whole(file);
    for (size_t at = 0; at < whole.size(); at += 3) {
        std::string changed = whole;
        changed[at] ^= 1;
        std::ofstream(file, std::ios::binary) << changed;
        EXPECT_EQ(cache.find("a text"), std::nullopt) << at;
        std::ofstream(file, std::ios::binary) << whole.substr(0, at);
        EXPECT_EQ(cache.find("a text"), std::nullopt) << at;
    }
}

/// What find_object gives: the bytes of the file's object and the data; "nothing" where there is none.
std::string object_in(const CodeCache& cache, const std::string& made_of) {
    std::string data;
    const auto found = cache.find_object(made_of, [&](uint64_t bytes) {
        data.resize(bytes);
        return reinterpret_cast<std::byte*>(data.data());
    });
    if (!found) return "nothing";
    std::string object(found->object_bytes, ' ');
    EXPECT_EQ(::pread(found->file.get(), object.data(), object.size(), 0), static_cast<ssize_t>(object.size()));
    return object + "|" + data;
}

TEST(CodeCache, KeepsObjectsWithTheirData) {
    const TemporaryFolder folder;
    const CodeCache cache(folder.path());
    const std::vector<std::string_view> data = {"some ", "", "data"};
    cache.keep_object("a text", "object", data);
    EXPECT_EQ(object_in(cache, "a text"), "object|some data");
    EXPECT_EQ(object_in(cache, "another"), "nothing");
    EXPECT_EQ(cache.find("a text"), std::nullopt);
    EXPECT_FALSE(cache.find_object("a text", [](uint64_t) { return nullptr; }).has_value());
    cache.keep_object("a text", "", {});
    EXPECT_EQ(object_in(cache, "a text"), "|");
}

TEST(CodeCache, RejectsCorruptObjects) {
    const TemporaryFolder folder;
    const CodeCache cache(folder.path());
    cache.keep_object("a text", "object", std::vector<std::string_view>{"some data"});
    fs::path file;
    for (const auto& entry : fs::directory_iterator(folder.path()))
        if (entry.path().extension() == ".model") file = entry.path();
    const std::string whole = read_whole(file);
    for (size_t at = 0; at < whole.size(); ++at) {
        std::string changed = whole;
        changed[at] ^= 1;
        for (const std::string& content : {changed, whole.substr(0, at), whole + "x"}) {
            std::ofstream(file, std::ios::binary) << content;
            EXPECT_EQ(object_in(cache, "a text"), "nothing") << at;
        }
    }
    std::ofstream(file, std::ios::binary) << whole;
    EXPECT_EQ(object_in(cache, "a text"), "object|some data");
    fs::permissions(file, fs::perms::owner_read | fs::perms::group_read);
    EXPECT_EQ(object_in(cache, "a text"), "nothing");
}

TEST(CodeCache, KeepsObjectsUpToAQuarterOfItsSize) {
    const TemporaryFolder folder;
    const CodeCache cache(folder.path(), 40'000);
    const std::string large(9'000, 'x');
    for (int k = 0; k < 8; ++k) cache.keep_object(std::to_string(k), large, {});
    EXPECT_EQ(object_in(cache, "7"), large + "|");
    EXPECT_EQ(object_in(cache, "0"), "nothing");
    uintmax_t bytes = 0;
    for (const auto& entry : fs::directory_iterator(folder.path())) bytes += entry.file_size();
    EXPECT_LE(bytes, 41'000u);
    cache.keep_object("larger", std::string(10'000, 'x'), {});
    EXPECT_EQ(object_in(cache, "larger"), "nothing");
}

/// A file of a cache with another key in the place of this cache's file: complete, and valid except for the key.
TEST(CodeCache, RejectsAFileUnderAnotherKey) {
    const TemporaryFolder folder, other;
    CodeCache(folder.path()).keep("a text", "code");
    CodeCache(other.path()).keep("a text", "evil");
    fs::copy_file(entries(other.path())[0], entries(folder.path())[0], fs::copy_options::overwrite_existing);
    EXPECT_EQ(CodeCache(folder.path()).find("a text"), std::nullopt);
    // Without its key a cache starts empty.
    CodeCache(folder.path()).keep("a text", "code");
    fs::remove(folder / "key");
    EXPECT_EQ(CodeCache(folder.path()).find("a text"), std::nullopt);
    CodeCache(folder.path()).keep("a text", "code");
    EXPECT_EQ(CodeCache(folder.path()).find("a text"), "code");
}

TEST(CodeCache, WarnsOnceIfAFolderCannotBeUsed) {
    const TemporaryFolder folder;
    const std::string top = folder / "top", middle = top + "/tilewright", code = middle + "/code";
    CodeCache(code).keep("a text", "code");
    EXPECT_EQ(CodeCache(code).find("a text"), "code");
    for (const std::string& open : {top, middle, code})
        for (const fs::perms others : {fs::perms::group_write, fs::perms::others_write}) {
            fs::permissions(open, others, fs::perm_options::add);
            const std::string why = refusal(code);
            EXPECT_THAT(why, testing::HasSubstr("folder '" + open + "' can be written by others (mode 07"));
            EXPECT_THAT(why, testing::HasSubstr("chmod go-w '" + open + "'"));
            fs::permissions(open, others, fs::perm_options::remove);
        }
    EXPECT_EQ(CodeCache(code).find("a text"), "code") << "nothing is wrong any more";
    for (const std::string& shared : {top, middle}) {  // sticky: each user may remove only their own files, as in /tmp
        fs::permissions(shared, fs::perms::all | fs::perms::sticky_bit);
        EXPECT_EQ(CodeCache(code).find("a text"), "code") << shared;
        fs::permissions(shared, fs::perms::owner_all);
    }
    std::ofstream(folder / "file") << "a file";
    EXPECT_THAT(refusal(folder / "file"), testing::HasSubstr("is not a folder"));
    EXPECT_THAT(refusal("/proc/no/such/folder"), testing::HasSubstr("'/proc/no' cannot be made"));
    for (const std::string& folder_or_above : {code, middle}) {
        fs::rename(folder_or_above, folder / "moved");
        fs::create_directory_symlink(folder / "moved", folder_or_above);
        EXPECT_THAT(refusal(code), testing::HasSubstr("folder '" + folder_or_above + "' is a link"));
        fs::remove(folder_or_above);
        fs::rename(folder / "moved", folder_or_above);
    }
    EXPECT_EQ(CodeCache(code).find("a text"), "code");
    if (::geteuid() != 0) GTEST_SKIP() << "the rest needs several users";
    for (const std::string& given : {top, middle, code}) {
        ASSERT_EQ(::chown(given.c_str(), kNobody, kNobody), 0);
        EXPECT_THAT(refusal(code), testing::HasSubstr("folder '" + given + "' belongs to another user (65534)"));
        ASSERT_EQ(::chown(given.c_str(), 0, 0), 0);
    }
    // Folders of root are trusted.
    fs::permissions(folder.path(), fs::perms::all);
    fs::permissions(top, fs::perms::owner_all | fs::perms::group_exec | fs::perms::others_exec);
    ASSERT_EQ(::chown(middle.c_str(), kNobody, kNobody), 0);
    EXPECT_TRUE(in_child([&] {
        if (::seteuid(kNobody) != 0) return false;
        const CodeCache cache(middle + "/of_nobody");
        cache.keep("a text", "code");
        return cache.find("a text") == "code";
    }));
}

TEST(CodeCache, CreatesPrivateFoldersAndFiles) {
    for (const mode_t mask : {0000, 0022, 0777}) {
        const TemporaryFolder folder;
        ::chmod(folder.path().c_str(), 0700);
        EXPECT_TRUE(in_child([&] {
            ::umask(mask);
            const CodeCache cache(folder / "tilewright/code");
            cache.keep("a text", "code");
            return cache.find("a text") == "code";
        })) << mask;
        for (const char* made : {"tilewright", "tilewright/code"}) EXPECT_EQ(mode_of(folder / made), 0700u) << made;
        for (const auto& file : fs::directory_iterator(folder / "tilewright/code"))
            EXPECT_EQ(mode_of(file.path()), 0600u) << file.path();
    }
}

/// Pipes, devices, links and huge files in the place of a cache file: the cache neither blocks on them nor reads or
/// runs them.
TEST(CodeCache, RejectsForeignFileTypes) {
    const TemporaryFolder folder;
    const CodeCache cache(folder / "code");
    cache.keep("a text", "code");
    const fs::path file = entries(folder / "code").at(0);
    const std::string whole = read_whole(file), kept = folder / "kept", name = file.string();
    const auto write = [&](const std::string& path) {
        std::ofstream(path, std::ios::binary) << whole;
        ::chmod(path.c_str(), 0600);
    };
    write(kept);
    const std::vector<std::pair<std::string, std::function<void()>>> odd = {
        {"a pipe", [&] { ASSERT_EQ(::mkfifo(name.c_str(), 0600), 0); }},
        {"a device", [&] { fs::create_symlink("/dev/zero", name); }},
        {"a link to a good file", [&] { fs::create_symlink(kept, name); }},
        {"a file of two names", [&] { fs::create_hard_link(kept, name); }},
        {"a dangling link", [&] { fs::create_symlink("/nonexistent/x", name); }},
        {"64 GB",
         [&] {
             write(name);
             fs::resize_file(name, uintmax_t{64} << 30);
         }},
        {"a file that others may write",
         [&] {
             write(name);
             fs::permissions(name, fs::perms::others_write, fs::perm_options::add);
         }},
        {"a file that others may read",
         [&] {
             write(name);
             fs::permissions(name, fs::perms::group_read, fs::perm_options::add);
         }},
        {"a file that may not be read",
         [&] {
             std::ofstream(name).flush();
             fs::permissions(name, fs::perms::none);
         }},
        {"a file of another user",
         [&] {
             write(name);
             if (::chown(name.c_str(), kNobody, kNobody) != 0) fs::resize_file(name, 0);  // where root is missing
         }},
    };
    for (const auto& [what, put] : odd) {
        fs::remove(name);
        put();
        EXPECT_EQ(cache.find("a text"), std::nullopt) << what;
        cache.keep("a text", "code");
        EXPECT_EQ(cache.find("a text"), "code") << what << " should be replaced";
        EXPECT_EQ(read_whole(kept), whole) << what << ": nothing is written through links";
    }
    fs::remove(name);
    fs::create_directory(name);
    EXPECT_EQ(cache.find("a text"), std::nullopt);
    cache.keep("a text", "code");
    EXPECT_TRUE(fs::is_directory(name));
    EXPECT_EQ(entries(folder / "code").size(), 1u) << "nothing half written stays";
}

TEST(CodeCache, DeletesOnlyItsOwnFiles) {
    const TemporaryFolder folder;
    const std::string code = folder / "code";
    fs::create_directory(code);
    fs::permissions(code, fs::perms::owner_all);
    const std::string digits(32, 'a');
    const std::vector<std::string> foreign = {"thesis.txt",
                                              "vm.img",
                                              digits,
                                              digits + ".code.old",
                                              digits + ".code.1",
                                              digits + ".codes",
                                              digits + "a.code",
                                              digits.substr(1) + ".code",
                                              digits + ".code.1.2.3",
                                              "key.txt",
                                              digits.substr(1) + "A.code"};
    for (const std::string& name : foreign) std::ofstream(code + "/" + name) << "my only copy";
    fs::resize_file(code + "/vm.img", uintmax_t{2} << 30);
    fs::create_directory(code + "/" + std::string(32, 'b') + ".code");
    std::ofstream(folder / "outside") << "my only copy";
    fs::create_symlink(folder / "outside", code + "/" + std::string(32, 'c') + ".code");
    const pid_t gone = ::fork();
    if (gone == 0) ::_exit(0);
    ::waitpid(gone, nullptr, 0);
    const std::string left = digits + ".code." + std::to_string(gone) + ".7";
    std::ofstream(code + "/" + left) << "half a file";
    std::ofstream(code + "/key." + std::to_string(gone) + ".0") << "half a key";
    const std::string old = code + "/" + std::string(32, 'd') + ".code";
    std::ofstream(old) << std::string(5000, 'x');
    for (const auto& file : fs::directory_iterator(code))
        if (!file.is_symlink())
            fs::last_write_time(file.path(), fs::file_time_type::clock::now() - std::chrono::hours(24));
    CodeCache(code, 1000).keep("a text", std::string(100, 'c'));
    for (const std::string& name : foreign) EXPECT_TRUE(fs::exists(code + "/" + name)) << name;
    EXPECT_TRUE(fs::exists(code + "/" + std::string(32, 'b') + ".code"));
    EXPECT_TRUE(fs::is_symlink(code + "/" + std::string(32, 'c') + ".code"));
    EXPECT_EQ(read_whole(folder / "outside"), "my only copy");
    EXPECT_FALSE(fs::exists(old)) << "of the cache's own files the oldest makes room";
    EXPECT_FALSE(fs::exists(code + "/" + left)) << "files of a killed process are removed at once";
    EXPECT_FALSE(fs::exists(code + "/key." + std::to_string(gone) + ".0"));
    EXPECT_EQ(CodeCache(code).find("a text"), std::string(100, 'c'));
}

TEST(CodeCache, ToleratesAFileSizeLimit) {
    const TemporaryFolder folder;
    EXPECT_TRUE(in_child([&] {
        const rlimit none{0, 0}, small{1000, 1000};
        ::setrlimit(RLIMIT_CORE, &none);
        ::setrlimit(RLIMIT_FSIZE, &small);
        int warnings = 0;
        const CodeCache cache(folder / "code", [&](const std::string& text) {
            warnings += text.find("File too large") != std::string::npos ? 1 : 0;
        });
        cache.keep("large", std::string(5000, 'x'));
        cache.keep("large too", std::string(5000, 'x'));
        cache.keep("small", "code");
        sigset_t blocked, pending;
        ::pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
        ::sigpending(&pending);
        return warnings == 1 && !cache.find("large") && cache.find("small") == "code" &&
               ::sigismember(&blocked, SIGXFSZ) == 0 && ::sigismember(&pending, SIGXFSZ) == 0;
    }));
    EXPECT_EQ(entries(folder / "code").size(), 1u);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder / "code"), {}), 2) << "the key, and nothing half written";
}

/// An attacker owns the parent folder and exchanges `code` between a link to a folder of the victim and a complete
/// cache of the attacker under another key.
TEST(CodeCache, ResistsExchangedFolders) {
    if (::geteuid() != 0) GTEST_SKIP() << "needs several users";
    const TemporaryFolder shared, victim;
    ::chmod(shared.path().c_str(), 01777);
    ::chmod(victim.path().c_str(), 0755);
    CodeCache(victim.path()).keep("the victim's", "code");
    const std::string middle = shared / "tilewright", code = middle + "/code", evil = middle + "/evil";
    const pid_t attacker = ::fork();
    if (attacker == 0) {
        if (::setgid(kNobody) != 0 || ::setuid(kNobody) != 0) ::_exit(1);
        ::umask(0);
        ::mkdir(middle.c_str(), 0777);
        const CodeCache own(evil);
        own.keep("a text", "evil");
        ::chmod(evil.c_str(), 0755);
        if (::symlink(victim.path().c_str(), code.c_str()) != 0) ::_exit(1);
        for (;;) ::renameat2(AT_FDCWD, code.c_str(), AT_FDCWD, evil.c_str(), RENAME_EXCHANGE);
    }
    while (!fs::exists(fs::symlink_status(code))) std::this_thread::yield();
    for (const bool own_middle : {false, true}) {
        // Then as an earlier version left it under umask 0: the folder is the victim's, and writable by all.
        ASSERT_EQ(::chown(middle.c_str(), own_middle ? 0 : kNobody, 0), 0);
        int found = 0, warned = 0;
        for (int k = 0; k < 2000; ++k) {
            const CodeCache cache(code, [&](const std::string&) { ++warned; });
            found += cache.find("a text") || cache.find("the victim's") ? 1 : 0;
        }
        EXPECT_EQ(found, 0);
        EXPECT_EQ(warned, 2000);
    }
    ::kill(attacker, SIGKILL);
    ::waitpid(attacker, nullptr, 0);
}

TEST(CodeCache, FindsCompleteEntriesOnlyAfterAKill) {
    const TemporaryFolder folder;
    constexpr int kTexts = 64;
    const auto code_of = [](int k) { return std::string(300000, static_cast<char>('a' + k % 26)) + std::to_string(k); };
    std::mt19937 rng(3);
    int found = 0, lost = 0;
    for (int round = 0; round < 20; ++round) {
        const pid_t child = ::fork();
        if (child == 0) {
            const CodeCache cache(folder.path());
            for (int k = 0;; ++k) cache.keep(std::to_string(k % kTexts), code_of(k % kTexts));
        }
        std::this_thread::sleep_for(std::chrono::microseconds(rng() % 30000));
        ::kill(child, SIGKILL);
        ::waitpid(child, nullptr, 0);
        const CodeCache cache(folder.path());
        for (int k = 0; k < kTexts; ++k)
            if (const auto code = cache.find(std::to_string(k))) {
                EXPECT_EQ(*code, code_of(k)) << k;
                ++found;
            } else {
                ++lost;
            }
    }
    EXPECT_GT(found, 0);
    // Partial files do no harm, and are removed when room is needed.
    const CodeCache small(folder.path(), 400000);
    for (int k = 0; k < 40; ++k) small.keep("new " + std::to_string(k), std::string(1000, 'c'));
    int64_t bytes = 0;
    for (const fs::path& f : folder.files()) bytes += static_cast<int64_t>(fs::file_size(f));
    EXPECT_LT(bytes, 500000) << lost;
}

TEST(CodeCache, EvictsTheLeastRecentlyUsedEntry) {
    const TemporaryFolder folder;
    const std::string code(1000, 'c');
    for (const char* text : {"a", "b", "c", "d"}) {
        CodeCache(folder.path(), 5000).keep(text, code);
        for (const fs::path& f : folder.files())
            fs::last_write_time(f, fs::last_write_time(f) - std::chrono::seconds(10));
    }
    const CodeCache cache(folder.path(), 5000);
    EXPECT_EQ(cache.find("a"), code);  // most recently used
    cache.keep("e", code);
    EXPECT_EQ(cache.find("a"), code);
    EXPECT_EQ(cache.find("b"), std::nullopt);
    EXPECT_EQ(cache.find("e"), code);
    // The total size is checked again after some writes.
    for (int k = 0; k < 40; ++k) cache.keep(std::to_string(k), code);
    EXPECT_LT(folder.files().size(), 8u);
}

TEST(CodeCache, HasAShareOfTheFreeSpace) {
    const TemporaryFolder folder;
    const int64_t bytes = CodeCache::default_bytes(folder / "not/there/yet");
    EXPECT_GE(bytes, int64_t{256} << 20);
    EXPECT_LE(bytes, int64_t{8} << 30);
    EXPECT_EQ(CodeCache(folder / "not/there/yet").most_object_bytes(), bytes / 4);
    const auto free = static_cast<int64_t>(std::filesystem::space(folder.path()).available);
    EXPECT_LE(bytes, std::max(int64_t{256} << 20, free / 7));
}

TEST(CodeCache, MakesRoomForAPartOfItsSizeAtATime) {
    const TemporaryFolder folder;
    const std::string code(1000, 'c');
    const CodeCache cache(folder.path(), 160'000);
    size_t most = 0, before = 0, checks = 0;
    for (int k = 0; k < 400; ++k) {
        cache.keep(std::to_string(k), code);
        const size_t files = folder.files().size();
        checks += files <= before ? 1 : 0;
        most = std::max(most, before = files);
    }
    EXPECT_LE(most, 170u) << "a sixteenth more than it may have, and its key";
    EXPECT_GT(most, 130u);
    EXPECT_LE(checks, 40u) << "not one for every file";
    EXPECT_GT(checks, 10u);
}

}  // namespace
}  // namespace tilewright
