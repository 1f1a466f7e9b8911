// Folders of checkpoints, and folders of safetensors files that other programs wrote.
#include <fmt/format.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "data/checkpoint/checkpoint_files.h"
#include "data/formats/safetensors.h"
#include "tests/data/checkpoints.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"

using namespace troupe;
using namespace troupe::datasets;
using Catch::Contains;
using troupe::testing::commit_step;
using troupe::testing::content;
using troupe::testing::Folder;
using troupe::testing::invalid_text;
namespace fs = std::filesystem;

TEST_CASE(
    "what was begun and never committed, and all but the newest, go, and what the folder did not make stays",
    "[data][checkpoint]") {
  Folder dir;
  const fs::path run = dir.path / "run", kept = dir.path / "kept";
  const CheckpointFolder all(run.string());
  for (const int64_t step : {1, 2, 3, 4}) commit_step(all, step);
  write_checkpoint_file(all.begin(7), "w1.model.safetensors", {{"x", zeros({2})}}, true);
  fs::create_directories(run / "step-12");  // no name of ours
  fs::create_directories(kept);
  std::ofstream(kept / "model.safetensors.index.json") << "somebody's";
  fs::create_directory_symlink(kept, run / "step-0000000009");
  std::ofstream(run / "notes") << "mine";
  CHECK(committed_steps(run.string()) == std::vector<int64_t>{1, 2, 3, 4});
  all.prune(2);
  CHECK(committed_steps(run.string()) == std::vector<int64_t>{3, 4});
  CHECK_FALSE(fs::exists(run / "step-0000000001"));
  CHECK_FALSE(fs::exists(run / "step-0000000007"));
  for (const char* name : {"step-12", "step-0000000009", "notes", "lock"}) CHECK(fs::exists(run / name));
  CHECK(content(kept / "model.safetensors.index.json") == "somebody's");
  all.prune(0);
  CHECK(committed_steps(run.string()) == std::vector<int64_t>{4});
  CHECK_THAT(invalid_text([&] { all.begin(4); }), Contains("is a checkpoint already"));
  all.abandon(4);
  CHECK(committed_steps(run.string()).empty());
  CHECK(committed_steps((dir.path / "none").string()).empty());
}

TEST_CASE("a folder of checkpoints belongs to one job at a time", "[data][checkpoint]") {
  Folder dir;
  const std::string run = (dir.path / "a" / "run").string();
  {
    const CheckpointFolder first(run);
    CHECK_THAT(invalid_text([&] { CheckpointFolder second(run); }),
               Contains(run + ": process " + std::to_string(getpid()) + " on ") &&
                   Contains("writes checkpoints there: wait for its end, or take another folder"));
  }
  const CheckpointFolder again(run);
  CHECK_THAT(invalid_text([] { CheckpointFolder none(""); }), Contains("expected the name of a folder"));
  CHECK_THAT(invalid_text([&] { CheckpointFolder none(dir.file("file", "x") + "/run"); }),
             Contains("cannot be made"));
  fs::create_directories(dir.path / "linked");
  fs::create_symlink(dir.path / "file", dir.path / "linked" / "lock");
  CHECK_THAT(invalid_text([&] { CheckpointFolder none((dir.path / "linked").string()); }),
             Contains("lock: cannot be opened"));
  fs::remove(dir.path / "linked" / "lock");
  REQUIRE(mkfifo((dir.path / "linked" / "lock").c_str(), 0600) == 0);
  CHECK_THAT(invalid_text([&] { CheckpointFolder none((dir.path / "linked").string()); }),
             Contains("lock: is not a regular file"));
}

TEST_CASE("a checkpoint whose folder has the name of another step is refused", "[data][checkpoint]") {
  Folder dir;
  const CheckpointFolder all((dir.path / "run").string());
  commit_step(all, 1);
  const fs::path folder = commit_step(all, 157);
  const std::string renamed = checkpoint_path(all.dir(), 300);
  fs::rename(folder, renamed);
  for (const std::string& path : {renamed, renamed + "/", renamed + "/."})
    CHECK_THAT(
        invalid_text([&] { const Checkpoint none(path); }),
        Contains("is of step 157, and its folder is named for step 300") && Contains("step-0000000157"));
  CHECK_THAT(invalid_text([&] { read_safetensors_folder(renamed); }), Contains("is of step 157"));
  CHECK_THAT(other_checkpoints(all.dir(), 400), Contains("of step 1, is whole"));
  const fs::path best = dir.path / "best";  // no name of a step says nothing
  fs::rename(renamed, best);
  CHECK(Checkpoint(best.string()).index().step == 157);
}

TEST_CASE("a link or a file that is called as a checkpoint is refused at the start, and stays",
          "[data][checkpoint]") {
  Folder dir;
  const fs::path run = dir.path / "run", kept = dir.path / "kept", link = run / "step-0000000009";
  {
    const CheckpointFolder all(run.string());
    fs::rename(commit_step(all, 9), kept);
  }
  const auto refused = [&] { return invalid_text([&] { const CheckpointFolder none(run.string()); }); };
  for (const fs::path& target : {kept, dir.path / "nothing"}) {
    fs::create_directory_symlink(target, link);
    CHECK_THAT(refused(), Contains(link.string() + ": is a symbolic link, expected the folder"));
    fs::remove(link);
    const CheckpointFolder all(run.string());
    fs::create_directory_symlink(target, link);  // while the job runs
    CHECK_THAT(invalid_text([&] { all.begin(9); }), Contains("is a symbolic link"));
    all.prune(1);
    CHECK(fs::is_symlink(link));
    fs::remove(link);
  }
  CHECK(Checkpoint(kept.string()).index().step == 9);
  dir.file("run/step-0000000009", "mine");
  CHECK_THAT(refused(), Contains(link.string() + ": is a file, expected the folder"));
  CHECK(content(link) == "mine");
}

TEST_CASE("a folder as other programs write it is read by its index, or without one by its files",
          "[data][checkpoint]") {
  Folder dir;
  const fs::path folder = dir.path / "model";
  fs::create_directories(folder);
  const std::string first = "model-00001-of-00002.safetensors", second = "model-00002-of-00002.safetensors";
  const Tensor w = tensor({{1, 2}, {3, 4}}, float32), b = tensor({5, 6}, float32);
  write_safetensors((folder / first).string(), {{"fc.weight", w}, {"unused", b}}, {{"format", "pt"}});
  write_safetensors((folder / second).string(), {{"fc.bias", b}}, {{"format", "pt"}});
  const auto index = [&](const nlohmann::json& weights) {
    dir.file("model/model.safetensors.index.json",
             nlohmann::json{{"metadata", {{"total_size", 24}}}, {"weight_map", weights}}.dump(2));
  };
  const auto text = [&] { return invalid_text([&] { read_safetensors_folder(folder.string()); }); };
  index({{"fc.weight", first}, {"fc.bias", second}});
  auto read = read_safetensors_folder(folder.string());
  CHECK(read.size() == 2);
  CHECK(bit_equal(read.at("fc.weight"), w));
  CHECK(bit_equal(read.at("fc.bias"), b));
  index({{"fc.weight", second}});
  CHECK_THAT(text(),
             Contains(second + ": has no tensor \"fc.weight\", and model.safetensors.index.json says"));
  index({{"fc.weight", "../" + first}});
  CHECK_THAT(text(), Contains("names the file \"../" + first + "\", expected a plain name"));
  index({{"fc.weight", 3}});
  CHECK_THAT(text(), Contains("\"weight_map\" has no file for \"fc.weight\""));
  index({{"fc.weight", "model-3.safetensors"}});
  CHECK_THAT(text(), Contains("model-3.safetensors: no such file"));
  dir.file("model/model.safetensors.index.json", "{\"weight_map\": {]}");
  CHECK_THAT(text(), Contains("is no JSON at byte 16"));

  fs::remove(folder / "model.safetensors.index.json");
  CHECK(read_safetensors_folder(folder.string()).size() == 3);
  write_safetensors((folder / "other.safetensors").string(), {{"fc.bias", b}});
  CHECK_THAT(text(), Contains("other.safetensors: has \"fc.bias\", as " + second + " has"));
  fs::remove_all(folder);
  CHECK_THAT(text(), Contains("cannot be listed"));
  fs::create_directories(folder);
  CHECK_THAT(text(), Contains("has no *.safetensors and no model.safetensors.index.json"));
  for (const int64_t row : {0, 1})  // as PyTorch's ranks write them
    write_checkpoint_file(
        folder.string(), fmt::format("shard-0000{}-model-00001-of-00001.safetensors", row + 1),
        {{"fc.weight", w.alias({1, 2}, {2, 1}, row * 2)}}, true, {{"fc.weight", Shape{row, 0}}});
  CHECK(bit_equal(read_safetensors_folder(folder.string()).at("fc.weight"), w));

  const CheckpointFolder ours((dir.path / "run").string());
  CHECK(read_safetensors_folder(commit_step(ours, 4)).size() == 2);  // the model's, verified
}

TEST_CASE("a folder of files without a tensor is refused, and hidden files are no part of a model",
          "[data][checkpoint]") {
  Folder dir;
  const auto text = [&] { return invalid_text([&] { read_safetensors_folder(dir.path.string()); }); };
  const std::string file = (dir.path / "model.safetensors").string();
  write_safetensors(file, {});
  CHECK_THAT(text(),
             Contains(dir.path.string() + ": expected the tensors of a model, but its files hold none"));
  write_safetensors(file, {{"w", ones({2})}});
  dir.file("._model.safetensors", std::string("\0\5\026\7", 4));  // macOS
  CHECK(read_safetensors_folder(dir.path.string()).size() == 1);
  dir.file("model.safetensors.index.json", R"({"metadata": {}, "weight_map": {}})");
  CHECK_THAT(text(), Contains("model.safetensors.index.json names none"));
}
