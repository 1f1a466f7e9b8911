// Feeds that scripts make.
#include <catch2/catch.hpp>

#include "data/datasets/token_file.h"
#include "tests/support/folder.h"
#include "tools/repl/lua/interpreter.h"

using namespace troupe;

TEST_CASE("a script reads batches of token files with and without readers and says how fast") {
  const testing::Folder folder;
  const std::string file = (folder.path / "a.bin").string();
  std::vector<int64_t> ids(101);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i);
  datasets::write_token_file(file, ids);
  repl::Interpreter interpreter(Cluster::in_process(3), {}, {});
  const auto out = interpreter.run("local file = '" + file + R"('
    local source = {kind = "token_windows", files = {file}, context = 10}
    local function firsts(options)
      local all = {}
      for batch in feed(source, options) do
        for _, row in ipairs(batch.x:tolist()) do all[#all + 1] = row[1] end
      end
      return table.concat(all, " ")
    end
    assert(firsts({batch = 4}) == "0 10 20 30 40 50 60 70 80 90")
    local mixed = firsts({batch = 4, seed = 1, block = 1})
    assert(mixed ~= firsts({batch = 4}))
    assert(mixed == firsts({batch = 3, seed = 1, block = 1, readers = {"w1", "w2"}}))
    local f = feed(source, {take = 5, pad = {x = 0}})
    assert(#f:next().x == 5)
    assert(f:next() == nil)
    assert(f:report().rows == 5)
    f:close())",
                                   "=test", false);
  CHECK(out.error == "");
  for (const char* wrong : {"feed('nowhere.bin')", "feed({kind = 'tar'})", "feed('a', {bach = 3})"})
    CHECK_FALSE(interpreter.run(wrong, "=test", false).ok);
}

TEST_CASE("feeds of sources by name give batches, and go on from a place") {
  const testing::Folder folder;
  std::string text = "n,kind\n";
  for (int i = 0; i < 10; ++i) text += std::to_string(i) + ",k\n";
  repl::Interpreter interpreter(Cluster::in_process(1), {}, {"script", folder.file("a.csv", text)});
  const auto outcome = interpreter.run(R"lua(
    local rows = data.csv_rows(arg[1], {types = {kind = "text"}})
    assert(#rows == 10 and rows:read(3).n == 3 and rows:read(3).kind == "k")
    assert(not pcall(rows.read, rows, 10))
    local function all(of)
      local out = {}
      for batch in of do
        for _, n in ipairs(batch.n:tolist()) do out[#out + 1] = n end
      end
      return table.concat(out, " ")
    end
    local whole = all(feed(rows, {batch = 3, seed = 1}))
    assert(#whole == 19 and whole ~= "0 1 2 3 4 5 6 7 8 9", whole)
    local first, again = feed(rows, {batch = 3, seed = 1}), feed(rows, {batch = 4, seed = 1})
    local before = table.concat(first:next().n:tolist(), " ")
    again:load(first:state())
    assert(before .. " " .. all(again) == whole)
    assert(again:report().rows == 7 and again:report().broken == 0)
    local twice = data.mixed({{rows, 1}, {rows, 3}}, 8)
    assert(#twice == 8 and all(feed(twice)) == "0 0 1 2 3 1 4 5", all(feed(twice)))
    local ok, what = pcall(data.side_by_side, {rows, rows})
    assert(ok and not pcall(what.read, what, 0))
    ok, what = pcall(feed, rows, {bach = 3})
    assert(not ok and tostring(what):find("bach", 1, true), what)
    ok, what = pcall(data.mixed, {{1, 2}})
    assert(not ok and tostring(what):find("entry 1 is no source", 1, true), what)
  )lua",
                                       "=test", false);
  CHECK(outcome.error == "");
}
