// Layouts: what a file says, and what it may not say.
#include "tools/draw/layout.h"

#include <catch2/catch.hpp>

#include "tests/support/error_of.h"
#include "tests/support/folder.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

std::string said(const std::string& json) {
  return invalid_text([&] { (void)tools::parse_layout(json, "here"); });
}

}  // namespace

TEST_CASE("a layout says where stages live, where a model is cut, and how the pipeline runs") {
  const tools::Layout layout = tools::parse_layout(
      R"json({"stages": ["w1", "w2", "w1", "w2"], "cuts": [2, 5, 7], "schedule": "interleaved", "micro_batches": 6,
              "chunks": 2, "checkpoint": "except_last", "policies": {"embedding": "ssp(3)", "head": "bsp or abort"}})json",
      "here");
  CHECK(layout.places == std::vector<std::string>{"w1", "w2", "w1", "w2"});
  CHECK(layout.cuts == std::vector<size_t>{2, 5, 7});
  CHECK(layout.pipeline.schedule == "interleaved");
  CHECK(layout.pipeline.micro_batches == 6);
  CHECK(layout.pipeline.chunks == 2);
  CHECK(layout.pipeline.checkpoint == parallel::Checkpoint::except_last);
  CHECK(layout.policies.size() == 2);
  CHECK(layout.policies.at("embedding") ==
        parallel::ServerPolicy{.kind = parallel::ServerPolicy::Kind::ssp, .bound = 3});
  CHECK(layout.policies.at("head").str() == "bsp or abort");

  const tools::Layout table = tools::parse_layout(
      R"({"stages": ["w1", "w2"], "micro_batches": 2, "schedule": ["w0: F0 F1 B0 B1", "w1: F0 B0 F1 I1 W1"]})",
      "here");
  CHECK(table.pipeline.schedule == "w0: F0 F1 B0 B1\nw1: F0 B0 F1 I1 W1\n");
  const tools::Layout least =
      tools::parse_layout(R"({"stages": ["w0"], "schedule": "auto", "most_live": [3]})", "here");
  CHECK(least.pipeline.most_live == std::vector<int>{3});
  CHECK(least.pipeline.checkpoint == parallel::Checkpoint::never);
}

TEST_CASE("what is no layout is refused, with its name, key and value") {
  CHECK(said("{").starts_with("[layout] here: "));
  CHECK(said("[]") == "[layout] here: expected an object, got array");
  CHECK(said("{}") == "[layout] here: \"stages\" is missing: the worker of each stage");
  CHECK(said(R"({"stages": []})") == "[layout] here: \"stages\" is empty: expected the worker of each stage");
  CHECK(said(R"({"stage": ["w0"]})") == "[layout] here: there is no key \"stage\"; did you mean \"stages\"?");
  CHECK(said(R"({"stages": ["w0"], "stages": ["w1"]})") ==
        "[layout] here: the key \"stages\" is there twice");
  CHECK(said(R"({"stages": [3]})") == "[layout] here: \"stages\" has 3: expected text");
  CHECK(said(R"({"stages": "w1"})") == "[layout] here: \"stages\" is \"w1\": expected a list");
  CHECK(said(R"({"stages": ["a", "b"], "cuts": [1, 2]})") ==
        "[layout] here: 2 \"cuts\" make 3 stages, and \"stages\" has 2");
  CHECK(said(R"({"stages": ["a"], "micro_batches": 0})") ==
        "[layout] here: \"micro_batches\" has 0: expected a whole number from 1 to 1048576");
  CHECK(said(R"({"stages": ["a"], "micro_batches": 1e99})").find("expected a whole number") !=
        std::string::npos);
  CHECK(said(R"({"stages": ["a"], "micro_batches": 99999999999999999999})").find("expected a whole number") !=
        std::string::npos);
  CHECK(said(R"({"stages": ["a"], "checkpoint": "sometimes"})") ==
        "[layout] here: \"checkpoint\" is \"sometimes\": expected never, except_last or always");
  CHECK(said(R"({"stages": ["a"], "schedule": "1f2b"})").find("did you mean \"1f1b\"?") != std::string::npos);
  CHECK(said(R"({"stages": ["a", "b"], "micro_batches": 1, "schedule": ["w0: F0 B0", "w1: F0"]})") ==
        "[layout] here: [schedule] custom: B0 is missing in the row of w1");
  CHECK(said(R"({"stages": ["a", "b", "c"], "chunks": 2})") ==
        "[layout] here: 3 \"stages\" cannot be 2 \"chunks\" for each worker");
  CHECK(said(R"({"stages": ["a"], "policies": ["async"]})") ==
        "[layout] here: \"policies\" is [\"async\"]: expected an object");
  CHECK(said(R"({"stages": ["a"], "policies": {"w": 3}})") ==
        "[layout] here: \"policies\" of \"w\" has 3: expected text");
  for (const std::string policy : {"asink", "ssp(-1)", "quorum", ""})
    CHECK(said(R"({"stages": ["a"], "policies": {"b": "bsp", "w": ")" + policy + "\"}}")
              .starts_with("[layout] here: \"policies\" of \"w\": [policy] \"" + policy +
                           "\"; expected bsp, ssp(s), async, quorum(k)"));
}

TEST_CASE("a layout is read from a file") {
  Folder folder;
  CHECK(tools::read_layout(folder.file("a.json", R"({"stages": ["w0", "w2"]})")).places.size() == 2);
  const std::string big = folder.file("b.json", std::string((1 << 20) + 1, ' '));
  CHECK(invalid_text([&] { (void)tools::read_layout(big); }) ==
        "[layout] " + big + ": 1048577 bytes, expected at most 1048576");
  CHECK(invalid_text([&] {
          (void)tools::read_layout((folder.path / "none.json").string());
        }).starts_with("[layout] "));
}
