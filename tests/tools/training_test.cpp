// A training run: the bar's epochs, what is remembered, and the chart.
#include "tools/draw/training.h"

#include <catch2/catch.hpp>

#include "tests/support/error_of.h"
#include "tests/support/folder.h"

using namespace troupe;
using testing::content;
using testing::invalid_text;

TEST_CASE("a training run remembers losses and measures, and draws them") {
  const testing::Folder folder;
  const std::string picture = (folder.path / "run.svg").string();
  tools::Training training(picture, "A run", 4, {.epochs = 2, .measure = "accuracy"});
  CHECK_FALSE(invalid_text([&] { training.loss(); }).empty());
  for (const double loss : {4.0, 3.0, 2.0, 1.0}) training.step(loss, 10, {{"perplexity", 2 * loss}});
  training.measure(0.5), training.measure(0.75);
  CHECK(training.loss() == 1);
  CHECK(training.loss(2) == 1.5);
  CHECK(training.measured() == 0.75);
  training.finish("loss 1");
  const std::string chart = content(picture);
  for (const char* text : {"A run", "training loss", "accuracy", "step"}) {
    INFO(text);
    CHECK(chart.find(text) != std::string::npos);
  }
}

TEST_CASE("a training run writes its curves to a folder that is asked for") {
  const testing::Folder folder;
  const std::string runs = (folder.path / "runs").string();
  {
    tools::Training training((folder.path / "run.svg").string(), "A run", 2, {.measure = "accuracy", .summary = runs});
    training.step(4, 10, {{"perplexity", 8}});
    training.measure(0.5);
    training.step(3, 10);
  }
  const std::string lines = content(runs + "/steps.jsonl");
  CHECK(lines.find("\"loss\":4.0,\"perplexity\":8.0,\"accuracy\":0.5}\n") != std::string::npos);
  CHECK(lines.find("\"loss\":3.0}\n") != std::string::npos);
}

TEST_CASE("a training run without a measure draws its loss alone") {
  const testing::Folder folder;
  const std::string picture = (folder.path / "run.svg").string();
  tools::Training training(picture, "A run", 1);
  training.step(4, 10);
  training.step(3, 10);  // one more than was said
  training.set_json_line({{"loss", 3.0}, {"steps", int64_t{2}}});
  CHECK(invalid_text([&] {
          training.set_json_line({{"all", ValueList{}}});
        }) == "[training] \"all\" of the JSON line is neither a number nor a text nor a truth");
  training.finish("loss %.0f", 3.0);
  CHECK(content(picture).find("training loss") != std::string::npos);
}
