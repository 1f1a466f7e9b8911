// Layouts: what a file says, what it may not say, and that nothing of it goes unread.
#include "parallel/layout/layout.h"

#include <catch2/catch.hpp>

#include "tests/support/error_of.h"
#include "tests/support/folder.h"

using namespace troupe;
using namespace troupe::testing;
using parallel::Layout;

namespace {

// Of a program with a pipeline whose stages are cut, and servers.
std::string layout_error(const std::string& json) {
  return invalid_text([&] {
    Layout layout = parallel::parse_layout(json, "here");
    const size_t stages = layout.stages({"w0"}).size();
    (void)layout.cuts(stages);
    (void)layout.pipeline(stages);
    (void)layout.policy("w"), (void)layout.policy("bias");
    layout.check_all_read();
  });
}

}  // namespace

TEST_CASE("a layout says where stages live, where a model is cut, and how the pipeline runs") {
  Layout layout = parallel::parse_layout(
      R"json({"stages": ["w1", "w2", "w1", "w2"], "cuts": [2, 5, 7], "schedule": "interleaved", "micro_batches": 6,
              "chunks": 2, "checkpoint": "except_last", "policies": {"embedding": "ssp(3)", "head": "bsp or abort"}})json",
      "here");
  CHECK(layout.stages({}) == std::vector<std::string>{"w1", "w2", "w1", "w2"});
  CHECK(layout.cuts(4) == std::vector<size_t>{2, 5, 7});
  const auto pipeline = layout.pipeline(4);
  CHECK(pipeline.schedule == "interleaved");
  CHECK(pipeline.micro_batches == 6);
  CHECK(pipeline.chunks == 2);
  CHECK(pipeline.checkpoint == parallel::Checkpoint::except_last);
  CHECK(layout.policy("embedding") ==
        parallel::ServerPolicy{.kind = parallel::ServerPolicy::Kind::ssp, .bound = 3});
  CHECK(layout.policy("head").str() == "bsp or abort");
  layout.check_all_read();

  Layout table = parallel::parse_layout(
      R"({"micro_batches": 2, "schedule": ["w0: F0 F1 B0 B1", "w1: F0 B0 F1 I1 W1"]})", "here");
  CHECK(table.pipeline(2).schedule == "w0: F0 F1 B0 B1\nw1: F0 B0 F1 I1 W1\n");
}

TEST_CASE("what a layout does not say is as the program has it") {
  Layout layout = parallel::parse_layout(R"({"schedule": "auto", "most_live": [3]})", "here");
  CHECK(layout.stages({"w1", "w2"}).size() == 2);
  CHECK(layout.cuts(2, {4}) == std::vector<size_t>{4});
  const auto pipeline =
      layout.pipeline(2, {.micro_batches = 3, .checkpoint = parallel::Checkpoint::always, .most_live = {1}});
  CHECK(pipeline.schedule == "auto");
  CHECK(pipeline.most_live == std::vector<int>{3});
  CHECK(pipeline.micro_batches == 3);
  CHECK(pipeline.checkpoint == parallel::Checkpoint::always);
  CHECK(layout.policy("words", parallel::ServerPolicy::parse("async")).str() == "async");
  layout.check_all_read();
  Layout().check_all_read();
  CHECK(Layout().pipeline(2, {.micro_batches = 5}).micro_batches == 5);
}

TEST_CASE("what is no layout is refused, with its name, key and value") {
  CHECK(layout_error("{").starts_with("[layout] here: "));
  CHECK(layout_error("") ==
        "[layout] here: it is no JSON at line 1, column 1: syntax error while parsing value - unexpected end "
        "of "
        "input; expected '[', '{', or a literal");
  CHECK(layout_error("{\n  \"chunks\": 2,\n  \"cuts\": [1 2]\n}")
            .starts_with(
                "[layout] here: it is no JSON at line 3, column 14: syntax error while parsing array - "
                "unexpected number literal"));
  CHECK(layout_error("{\"chunks\":\n  1e400}") ==
        "[layout] here: the number 1e400 at line 2, column 7 is larger than any float64");
  CHECK(layout_error("{\"a\": " + std::string(5000, '9') + "}").size() < 400);
  CHECK(layout_error("{\"" + std::string(5000, 'a') + "\": 1}").size() < 500);
  CHECK(layout_error("[]") == "[layout] here: expected an object, got []");
  CHECK(layout_error(R"({"stages": []})") ==
        "[layout] here: \"stages\" is []: expected the worker of each stage");
  CHECK(layout_error(R"({"stage": ["w0"]})")
            .starts_with("[layout] here: there is no key \"stage\"; did you mean \"stages\"? There are: "
                         "\"checkpoint\", "));
  CHECK(layout_error(R"({"optimizer": "adam"})")
            .starts_with("[layout] here: there is no key \"optimizer\". There are: \"checkpoint\", "));
  CHECK(layout_error(R"({"stages": ["w0"], "stages": ["w1"]})") ==
        "[layout] here: the key \"stages\" is there twice");
  CHECK(layout_error(R"({"policies": {"w": "bsp", "w": "async"}})") ==
        "[layout] here: the key \"w\" is there twice");
  CHECK(layout_error(R"({"stages": ["w0", 3.0]})") ==
        "[layout] here: element 2 of \"stages\" is 3.0: expected text");
  CHECK(layout_error(R"({"stages": "w1"})") ==
        "[layout] here: \"stages\" is \"w1\": expected a list of texts");
  CHECK(layout_error(R"({"stages": ["a", "b"], "cuts": [1, 2]})") ==
        "[layout] here: 2 \"cuts\" make 3 stages, and there are 2");
  CHECK(layout_error(R"({"cuts": [0]})") ==
        "[layout] here: element 1 of \"cuts\" is 0: expected a whole number from 1 to 1048576");
  CHECK(layout_error(R"({"cuts": 3})") ==
        "[layout] here: \"cuts\" is 3: expected a list, each a whole number from 1 to 1048576");
  CHECK(layout_error(R"({"chunks": 3.0})") ==
        "[layout] here: \"chunks\" is 3.0: expected a whole number from 1 to 1048576");
  for (const std::string wrong : {"0", "2.5", "1e99", "99999999999999999999", "\"2\"", "null", "true"})
    CHECK_THAT(layout_error(R"({"micro_batches": )" + wrong + "}"),
               Catch::StartsWith("[layout] here: \"micro_batches\" is ") &&
                   Catch::EndsWith(": expected a whole number from 1 to 1048576"));
  CHECK(layout_error(R"({"checkpoint": "sometimes"})") ==
        "[layout] here: \"checkpoint\" is \"sometimes\": expected never, except_last or always");
  CHECK(layout_error(R"({"schedule": {"w0": "F0"}})") ==
        "[layout] here: \"schedule\" is {\"w0\":\"F0\"}: expected text");
  CHECK_THAT(layout_error(R"({"schedule": "1f2b"})"), Catch::Contains("did you mean \"1f1b\"?"));
  CHECK(layout_error(R"({"stages": ["a", "b"], "micro_batches": 1, "schedule": ["w0: F0 B0", "w1: F0"]})") ==
        "[layout] here: [schedule] custom: B0 is missing in the row of w1");
  CHECK(layout_error(R"({"stages": ["a", "b", "c"], "chunks": 2})") ==
        "[layout] here: 3 stages cannot be 2 \"chunks\" for each worker");
  CHECK(layout_error(R"({"policies": ["async"]})") ==
        "[layout] here: \"policies\" is [\"async\"]: expected a policy for each name");
  CHECK(layout_error(R"({"policies": {"w": 3}})") ==
        "[layout] here: \"w\" of \"policies\" is 3: expected text");
  for (const std::string policy : {"asink", "ssp(-1)", "quorum", ""})
    CHECK(layout_error(R"({"policies": {"bias": "bsp", "w": ")" + policy + "\"}}")
              .starts_with("[layout] here: \"w\" of \"policies\": [policy] \"" + policy +
                           "\"; expected bsp, ssp(s), async, quorum(k)"));
  CHECK(layout_error(std::string(100'000, '[')).starts_with("[layout] here: it nests deeper than 8 levels"));
  const std::string deep = R"({"policies": )" + std::string(100'000, '[') + std::string(100'000, ']') + "}";
  CHECK(layout_error(deep) == "[layout] here: it nests deeper than 8 levels");
}

TEST_CASE("a key that nothing read is refused, and what would be read is said") {
  CHECK(layout_error(R"({"shard": "all"})") ==
        "[layout] here: nothing in this program reads \"shard\"; it reads: \"checkpoint\", \"chunks\", "
        "\"cuts\", \"micro_batches\", \"most_live\", \"policies\", \"schedule\", \"slices\", \"stages\"");
  CHECK(
      layout_error(R"({"policies": {"words": "async"}})") ==
      "[layout] here: \"policies\" names \"words\", which this program does not serve; it serves: \"bias\", "
      "\"w\"");
  CHECK(layout_error(R"({"policies": {"w": "async"}})") == "no error");
}

TEST_CASE("a layout is read from a file") {
  Folder folder;
  CHECK(parallel::read_layout(folder.file("a.json", R"({"stages": ["w0", "w2"]})")).stages({}).size() == 2);
  const std::string big = folder.file("b.json", std::string((1 << 20) + 1, ' '));
  CHECK(invalid_text([&] { (void)parallel::read_layout(big); }) ==
        "[layout] " + big + ": 1048577 bytes, expected at most 1048576");
  CHECK(invalid_text([&] {
          (void)parallel::read_layout((folder.path / "none.json").string());
        }).starts_with("[layout] "));
}
