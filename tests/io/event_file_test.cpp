#include "pareprop/io/event_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <stdexcept>
#include <system_error>

#include "pareprop/io/event_record.h"
#include "tests/io/temporary_folder.h"

namespace pareprop::io {
namespace {

using testing::content;
using testing::message_of;
using testing::put;
using testing::TemporaryFolder;

bool is_whole(const std::string& file) {
  return whole_records(std::as_bytes(std::span(file.data(), file.size()))) == file.size();
}

TEST(EventFile, StartsWithItsVersionAndGrowsWithEachCall) {
  const TemporaryFolder folder;
  EventFile file(folder / "new" / "run");
  EXPECT_EQ(file.path().filename(), "events.out.tfevents.pareprop");
  const std::string start = content(file.path());
  EXPECT_NE(start.find("brain.Event:2"), std::string::npos);
  file.add(1, {{"loss", 2.5F}, {"rate", 0.1F}});
  const std::string more = content(file.path());
  EXPECT_EQ(more.substr(0, start.size()), start);
  EXPECT_NE(more.find("loss"), std::string::npos);
  EXPECT_NE(more.find("rate"), std::string::npos);
  EXPECT_TRUE(is_whole(more));
}

TEST(EventFile, AppendsAfterWhatIsThere) {
  const TemporaryFolder folder;
  EventFile(folder.path()).add(1, {{"a", 1}});
  const std::string before = content(EventFile(folder.path()).path());
  EventFile(folder.path()).add(2, {{"b", 2}});
  const std::string after = content(EventFile(folder.path()).path());
  EXPECT_EQ(after.substr(0, before.size()), before);
  EXPECT_GT(after.size(), before.size());
  EXPECT_EQ(after.find("brain.Event:2", before.size()), std::string::npos);
}

TEST(EventFile, CutsOffARecordThatWasNotFinished) {
  const TemporaryFolder folder;
  EventFile(folder.path()).add(1, {{"first", 1}});
  const std::filesystem::path path = EventFile(folder.path()).path();
  const std::string whole = content(path);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    put(path, whole.substr(0, size));
    EventFile(folder.path()).add(2, {{"second", 2}});
    const std::string now = content(path);
    ASSERT_TRUE(is_whole(now)) << size;
    ASSERT_NE(now.find("brain.Event:2"), std::string::npos) << size;
    ASSERT_NE(now.find("second"), std::string::npos) << size;
    ASSERT_EQ(now.find("first"), std::string::npos) << size;
  }
}

TEST(EventFile, LeavesAFileAloneThatIsNotItsOwn) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "events.out.tfevents.pareprop";
  const std::string others[] = {std::string(1000, 'x'), make_record("something else"), "notes\n"};
  for (const std::string& other : others) {
    put(path, other);
    EXPECT_NE(message_of<std::runtime_error>([&] {
                EventFile{folder.path()};
              }).find("it is not a TensorBoard event file; move it away"),
              std::string::npos);
    EXPECT_EQ(content(path), other);
  }
}

TEST(EventFile, APipeOrALinkOutOfTheFolderIsNotWrittenTo) {
  const TemporaryFolder folder;
  const std::filesystem::path path = EventFile(folder / "run").path();
  std::filesystem::rename(path, folder / "elsewhere");
  std::filesystem::create_symlink(folder / "elsewhere", path);
  const std::string before = content(folder / "elsewhere");
  EXPECT_NE(message_of<std::runtime_error>([&] {
              EventFile{folder / "run"};
            }).find("which is outside of '" + (folder / "run").string() + "'"),
            std::string::npos);
  EXPECT_EQ(content(folder / "elsewhere"), before);
  std::filesystem::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_NE(message_of<std::runtime_error>([&] { EventFile{folder / "run"}; }).find("it is a pipe"),
            std::string::npos);
}

TEST(EventFile, RefusesBadInputAndWritesNothing) {
  const TemporaryFolder folder;
  EventFile file(folder.path());
  const std::string before = content(file.path());
  EXPECT_EQ(message_of<std::invalid_argument>([&] {
              file.add(-1, {{"a", 1}});
            }),
            "event file: the step is -1; expected 0 or more");
  EXPECT_EQ(message_of<std::invalid_argument>([&] {
              file.add(1, {{"a", 1}, {"", 1}});
            }),
            "event file: a scalar is called ''; expected a name in UTF-8");
  EXPECT_EQ(message_of<std::invalid_argument>([&] {
              file.add(1, {{"\xff", 1}});
            }),
            R"(event file: a scalar is called '\xff'; expected a name in UTF-8)");
  EXPECT_EQ(content(file.path()), before);

  put(folder / "file", "");
  EXPECT_THROW(EventFile{folder / "file"}, std::system_error);
}

}  // namespace
}  // namespace pareprop::io
