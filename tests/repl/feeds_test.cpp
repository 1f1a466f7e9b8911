// Sources and feeds in the shell.
#include <catch2/catch.hpp>

#include "tests/support/folder.h"
#include "tools/repl/lua/interpreter.h"

using namespace troupe;

TEST_CASE("feeds of sources by name give batches, and go on from a place") {
  const testing::Folder folder;
  std::string text = "n,kind\n";
  for (int i = 0; i < 10; ++i) text += std::to_string(i) + ",k\n";
  repl::Interpreter interpreter(Cluster::in_process(1), {}, {"script", folder.file("a.csv", text)});
  const auto outcome = interpreter.run(R"lua(
    local rows = data.csv_rows(arg[1], {types = {kind = "text"}})
    assert(#rows == 10 and rows:read(3).n == 3 and rows:read(3).kind == "k")
    assert(not pcall(rows.read, rows, 10))
    local function all(feed)
      local out = {}
      for batch in feed:batches() do
        for _, n in ipairs(batch.n:tolist()) do out[#out + 1] = n end
      end
      return table.concat(out, " ")
    end
    local whole = all(data.feed(rows, {batch = 3, seed = 1}))
    assert(#whole == 19 and whole ~= "0 1 2 3 4 5 6 7 8 9", whole)
    local first, again = data.feed(rows, {batch = 3, seed = 1}), data.feed(rows, {batch = 4, seed = 1})
    local before = table.concat(first:next().n:tolist(), " ")
    again:load(first:state())
    assert(before .. " " .. all(again) == whole)
    assert(again:report().rows == 7 and again:report().broken == 0)
    local twice = data.mixed({{rows, 1}, {rows, 3}}, 8)
    assert(#twice == 8 and all(data.feed(twice)) == "0 0 1 2 3 1 4 5", all(data.feed(twice)))
    local ok, what = pcall(data.side_by_side, {rows, rows})
    assert(ok and not pcall(what.read, what, 0))
    ok, what = pcall(data.feed, rows, {bach = 3})
    assert(not ok and tostring(what):find("feed has no option \"bach\"", 1, true), what)
    ok, what = pcall(data.mixed, {{1, 2}})
    assert(not ok and tostring(what):find("entry 1 is no source", 1, true), what)
  )lua",
                                       "=test", false);
  CHECK(outcome.error == "");
}
