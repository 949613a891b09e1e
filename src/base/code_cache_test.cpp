// Kept machine code: found again whole, or not at all.

#include "base/code_cache.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <thread>

#include "base/temporary_folder_test.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;

TEST(CodeCache, DoesNotBelieveAFileThatIsNotWhatItSays) {
    const TemporaryFolder folder;
    const CodeCache cache(folder.path());
    const std::string code("co\0de", 5);
    cache.keep("a text", code);
    EXPECT_EQ(cache.find("a text"), code);
    EXPECT_EQ(cache.find("another"), std::nullopt);
    ASSERT_EQ(folder.files().size(), 1u);
    const fs::path file = folder.files()[0];
    std::ostringstream whole;
    whole << std::ifstream(file, std::ios::binary).rdbuf();
    for (size_t at = 0; at < whole.str().size(); at += 3) {
        std::string changed = whole.str();
        changed[at] ^= 1;
        std::ofstream(file, std::ios::binary) << changed;
        EXPECT_EQ(cache.find("a text"), std::nullopt) << at;
        std::ofstream(file, std::ios::binary) << whole.str().substr(0, at);
        EXPECT_EQ(cache.find("a text"), std::nullopt) << at;
    }
    // Where nothing can be written nothing is kept.
    const CodeCache nowhere("/proc/no/such/folder");
    nowhere.keep("a text", code);
    EXPECT_EQ(nowhere.find("a text"), std::nullopt);
}

TEST(CodeCache, UsesNoFolderThatOthersMayWriteTo) {
    const TemporaryFolder folder;
    const std::string made = std::string(folder.path()) + "/code";
    const CodeCache cache(made);
    cache.keep("a text", "code");
    EXPECT_EQ(fs::status(made).permissions(), fs::perms::owner_all);
    fs::permissions(made, fs::perms::group_write, fs::perm_options::add);
    EXPECT_EQ(cache.find("a text"), std::nullopt);
    cache.keep("another", "code");
    fs::permissions(made, fs::perms::group_write, fs::perm_options::remove);
    EXPECT_EQ(cache.find("another"), std::nullopt);
    EXPECT_EQ(cache.find("a text"), "code");
}

TEST(CodeCache, HasAllOrNothingOfWhatAKilledProcessKept) {
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
    // What was half written is in nobody's way, and goes when room is needed.
    const CodeCache small(folder.path(), 400000);
    for (int k = 0; k < 40; ++k) small.keep("new " + std::to_string(k), "code");
    int64_t bytes = 0;
    for (const fs::path& f : folder.files()) bytes += static_cast<int64_t>(fs::file_size(f));
    EXPECT_LT(bytes, 500000) << lost;
}

TEST(CodeCache, ForgetsWhatWasAskedForLongestAgo) {
    const TemporaryFolder folder;
    const std::string code(1000, 'c');
    for (const char* text : {"a", "b", "c", "d"}) {
        CodeCache(folder.path(), 5000).keep(text, code);
        for (const fs::path& f : folder.files())
            fs::last_write_time(f, fs::last_write_time(f) - std::chrono::seconds(10));
    }
    const CodeCache cache(folder.path(), 5000);
    EXPECT_EQ(cache.find("a"), code);  // asked for just now
    cache.keep("e", code);
    EXPECT_EQ(cache.find("a"), code);
    EXPECT_EQ(cache.find("b"), std::nullopt);
    EXPECT_EQ(cache.find("e"), code);
    // It looks again after a while.
    for (int k = 0; k < 40; ++k) cache.keep(std::to_string(k), code);
    EXPECT_LT(folder.files().size(), 24u);
}

}  // namespace
}  // namespace tilewright
