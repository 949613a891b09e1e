#include "backend/cpu/shared_object.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "backend/cpu/run_kernel_test.h"

namespace tilewright::cpu {
namespace {

using namespace test;

/// The object file of a kernel of this formula.
std::string object_of(const char* formula) {
    const TileProgram program = of_forty_elements(formula);
    return compile({&program}, host(), nullptr, true).at(0).object;
}

std::string linked(const std::string& object) {
    SharedObject s;
    s.symbol = "table";
    s.magic = "TESTTEST";
    s.variants = {{{object}, "plan"}};
    return linked_shared_object(s);
}

/// The free memory of the arena that the last thread left, filled with one byte.
class FilledMemory {
  public:
    FilledMemory() {
        std::thread([this] {
            for (Block& b : blocks_) {
                b.reset(static_cast<char*>(::operator new(kBytes, kAlignment)));
                std::fill_n(b.get(), kBytes, kByte);
            }
        }).join();
    }
    bool intact() const {
        return std::all_of(blocks_.begin(), blocks_.end(), [](const Block& b) {
            return std::all_of(b.get(), b.get() + kBytes, [](char c) { return c == kByte; });
        });
    }

  private:
    static constexpr size_t kBytes = 4096;
    static constexpr std::align_val_t kAlignment{16};
    static constexpr char kByte = 0x55;
    struct Free {
        void operator()(char* p) const { ::operator delete(p, kAlignment); }
    };
    using Block = std::unique_ptr<char, Free>;
    std::vector<Block> blocks_ = std::vector<Block>(4000);
};

// LLD 19 keeps a pointer to the symbol _GLOBAL_OFFSET_TABLE_ of the last link that had one, and writes through it.
TEST(SharedObject, IsLinkedWithoutWritingToTheMemoryOfAnEarlierLink) {
    const std::string with = object_of("exp(@0)"), without = object_of("@0");
    constexpr const char* kTable = "_GLOBAL_OFFSET_TABLE_";
    ASSERT_NE(with.find(kTable), std::string::npos) << "a constant in memory is addressed from there";
    ASSERT_EQ(without.find(kTable), std::string::npos);
    linked(with);
    const FilledMemory memory;
    linked(without);
    EXPECT_TRUE(memory.intact());
}

TEST(SharedObject, HasEqualBytesForEqualArguments) {
    const std::string first = object_of("exp(@0)"), other = object_of("@0");
    const std::string once = linked(first);
    linked(other);
    EXPECT_EQ(linked(first), once);
}

}  // namespace
}  // namespace tilewright::cpu
