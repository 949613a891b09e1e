// The wrapper around every pass.

#include "compile/pass.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace tilewright {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Three passes that append their letter to a text.
struct Letters {
    std::string text;
    std::vector<std::string> faults;
    std::vector<std::string> printed;

    void run(Passes& pass) {
        pass({"a", "appends a", true, true}, [&] { text += 'a'; });
        pass({"b", "appends b"}, [&] { text += 'b'; });
        pass({"c", "appends c", false}, [&] { text += 'c'; });
        pass({"d", "does nothing"}, [] {});
    }
    Passes::Subject subject() {
        return {[this] { return text; }, [this] { return faults; }};
    }
    std::vector<std::string> compile(PassOptions options, const std::vector<std::string>& skip = {},
                                     PassRange range = {}) {
        options.print = [this](const std::string& when, const std::string& what) {
            printed.push_back(when + ": " + what);
        };
        Passes pass(options, skip, subject(), range);
        run(pass);
        std::vector<std::string> ran;
        for (const PassTime& t : pass.times()) ran.push_back(t.name);
        return ran;
    }
};

TEST(Passes, RunInOrderThoseThatAreOn) {
    Letters l;
    EXPECT_THAT(l.compile({}), ElementsAre("a", "b", "d"));
    EXPECT_EQ(l.text, "ab");
    EXPECT_THAT(l.printed, IsEmpty());
}

TEST(Passes, AreSkippedByNameButForRequiredOnes) {
    Letters l;
    EXPECT_THAT(l.compile({}, {"a", "b"}), ElementsAre("a", "d"));
    EXPECT_EQ(l.text, "a");
}

TEST(Passes, RunInARange) {
    Letters l;
    EXPECT_THAT(l.compile({}, {}, {"b", "c"}), ElementsAre("b"));
    EXPECT_THAT(l.compile({}, {}, {{}, "a"}), ElementsAre("a"));
    EXPECT_THAT(l.compile({}, {}, {"d", {}}), ElementsAre("d"));
}

TEST(Passes, PrintBeforeAndAfter) {
    Letters l;
    PassOptions o;
    o.print_before = {"b"};
    o.print_after = {"b", "d"};
    l.compile(o);
    EXPECT_THAT(l.printed, ElementsAre("before b: a", "after b: ab", "after d: (unchanged)\n"));
}

TEST(Passes, PrintAroundAll) {
    Letters l;
    PassOptions o;
    o.print_before_all = o.print_after_all = true;
    l.compile(o);
    EXPECT_EQ(l.printed.size(), 6u);
}

TEST(Passes, AreVerifiedOneByOne) {
    Letters l;
    PassOptions o;
    o.verify_each = true;
    EXPECT_THAT(l.compile(o), ElementsAre("a", "b", "d"));
    l.faults = {"a letter too many"};
    try {
        l.compile(o);
        ADD_FAILURE();
    } catch (const InternalError& e) {
        EXPECT_THAT(e.what(), HasSubstr("after a: a letter too many"));
    }
}

TEST(Passes, TellWhatBegins) {
    Letters l;
    PassOptions o;
    std::string begun;
    o.progress = [&](const std::string& name) { begun += name; };
    l.compile(o);
    EXPECT_EQ(begun, "abd");
}

TEST(Passes, ShowWhatEachLeaves) {
    Letters l;
    PassOptions o;
    std::vector<std::string> seen;
    o.after = [&](const std::string& name, const PassResult&) { seen.push_back(name + ": " + l.text); };
    Passes pass(o, {"d"},
                {[&] { return l.text; }, [] { return std::vector<std::string>(); }, [] { return PassResult(); }});
    l.run(pass);
    EXPECT_THAT(seen, ElementsAre("a: a", "b: ab"));
}

TEST(Passes, AreListedWithoutRunning) {
    Letters l;
    Passes pass;
    l.run(pass);
    EXPECT_EQ(l.text, "");
    ASSERT_EQ(pass.infos().size(), 4u);
    EXPECT_TRUE(pass.infos()[0].required);
    EXPECT_FALSE(pass.infos()[2].on);
    EXPECT_EQ(pass.infos()[3].what, "does nothing");
}

}  // namespace
}  // namespace tilewright
