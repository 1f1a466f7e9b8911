// Curves that scripts write.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>

#include "tests/support/folder.h"
#include "tools/repl/lua/interpreter.h"

using namespace troupe;

TEST_CASE("a script writes scalars, histograms, texts and pictures, and a line for each step") {
  const testing::Folder folder;
  const std::string runs = (folder.path / "first").string();
  repl::Interpreter interpreter(Cluster::in_process(1), {}, {});
  const auto out = interpreter.run("local s = summary('" + runs + R"(')
    for step = 1, 3 do
      s:scalar("loss", 1 / step, step)
      s:scalar("measure", ops.full({1}, 0.25 * step), step)
    end
    s:histogram("weights", ops.rand({100}), 3)
    s:text("notes", "**first**", 3)
    s:picture("sample", ops.rand({4, 4}), 3)
    s:close()
    assert(not pcall(function() s:scalar("loss", 1, 4) end)))",
                                   "=test", false);
  CHECK(out.error == "");
  const std::string lines = testing::content(folder.path / "first" / "steps.jsonl");
  INFO(lines);
  CHECK(std::count(lines.begin(), lines.end(), '\n') == 3);
  CHECK(lines.find("\"step\":2,") != std::string::npos);
  CHECK(lines.find("\"measure\":0.75") != std::string::npos);
  std::string events;
  for (const auto& file : std::filesystem::directory_iterator(folder.path / "first"))
    if (file.path().filename().string().starts_with("events.out.tfevents."))
      events = testing::content(file.path());
  for (const char* tag : {"loss", "measure", "weights", "notes", "**first**", "sample"})
    CHECK(events.find(tag) != std::string::npos);
}

TEST_CASE("a folder that cannot be written, and tags that are none, are errors of the script") {
  repl::Interpreter interpreter(Cluster::in_process(1), {}, {});
  CHECK_FALSE(interpreter.run("summary('/proc/nowhere')", "=test", false).ok);
  CHECK_FALSE(interpreter.run("summary()", "=test", false).ok);
}
