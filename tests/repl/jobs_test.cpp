// Jobs in scripts: one that stops anywhere goes on from its checkpoints.
#include <catch2/catch.hpp>

#include <sstream>
#include <string>

#include "data/checkpoint/checkpoint_files.h"
#include "tests/support/folder.h"
#include "tools/repl/lua/interpreter.h"
#include "tools/repl/lua/objects.h"
#include "tools/repl/repl.h"

using namespace troupe;
using Catch::Contains;

namespace {

constexpr const char* kTraining = R"(
  manual_seed(1)
  local bottom = spawn("Module", 1, nn.sequential{nn.linear(784, 16), "relu"})
  local top = spawn("Module", 0, nn.linear(16, 10))
  local opt = optim.adam({bottom, top}, {lr = 0.01})
  local rate = optim.scheduler(opt, optim.cosine(20))
  local curve = keep{losses = {}, noise = ops.zeros({2})}
  local training = job()
  for x, y, epoch, last in training:batches(data.digits{count = 50, seed = 7, batch = 10}, 4) do
    if #curve.losses == stop then break end
    local step <close> = context()
    curve.noise = curve.noise + ops.rand({2})
    local loss = ops.cross_entropy(top:forward(bottom:forward(x)), y)
    step:backward(loss)
    opt:step(step)
    rate:step()
    training:check(loss:item())
    curve.losses[#curve.losses + 1] = loss:item()
    assert(last == (#curve.losses % 5 == 0) and epoch == (#curve.losses - 1) // 5)
  end
  resumed = training:resumed()
  losses, noise, rate_now = curve.losses, curve.noise:tolist(), opt:options().lr
)";

std::string shown_end(repl::Interpreter& interpreter) {
  const auto out = interpreter.run(
      "shown_end = table.concat(losses, ' ') .. ' ' .. table.concat(noise, ' ') .. ' ' .. rate_now", "=test",
      false);
  REQUIRE(out.error == "");
  lua_State* L = interpreter.state();
  lua_getglobal(L, "shown_end");
  std::string text(repl::text_at(L, -1));
  lua_pop(L, 1);
  return text;
}

std::string end_of_script(const Checkpoints& checkpoints, int stop, bool resumes) {
  repl::Interpreter interpreter(Cluster::in_process(2, {}, {.checkpoints = checkpoints}), {}, {});
  const auto out = interpreter.run("stop = " + std::to_string(stop) + "\n" + kTraining, "=test", false);
  CHECK(out.error == "");
  CHECK(interpreter.run("assert(resumed == " + std::string(resumes ? "true" : "false") + ")", "=test", false)
            .error == "");
  return shown_end(interpreter);
}

}  // namespace

TEST_CASE("a script that stops anywhere goes on from its last checkpoint with the same bits") {
  const std::string whole = end_of_script({}, -1, false);
  for (const int stop : {3, 11, 19}) {
    const testing::Folder folder;
    const Checkpoints first{(folder.path / "run").string(), false, 2, 2};
    (void)end_of_script(first, stop, false);
    const auto steps = datasets::committed_steps(first.dir);
    REQUIRE_FALSE(steps.empty());
    CHECK(steps.back() <= stop);
    Checkpoints again = first;
    again.resume = true;
    CHECK(end_of_script(again, -1, true) == whole);
    CHECK(datasets::committed_steps(first.dir).back() == 20);
  }
}

TEST_CASE("what a script has dropped is in no checkpoint, and what cannot be kept is refused") {
  const testing::Folder folder;
  repl::Interpreter interpreter(
      Cluster::in_process(1, {}, {.checkpoints = {(folder.path / "run").string(), true, 1, 2}}), {}, {});
  const auto error = [&](const std::string& text) { return interpreter.run(text, "=test", false).error; };
  CHECK(error("do local old = keep{n = 1}; local module = nn.linear(2, 2); module(ops.ones({1, 2})) end\n"
              "kept = keep{n = 2}\n"
              "for step in job('a'):steps(2) do kept.n = kept.n + 1 end") == "");
  const datasets::Checkpoint last(datasets::checkpoint_path((folder.path / "run/a").string(), 2));
  CHECK(last.tensors("driver.keep#0.", false).size() == 1);
  CHECK(last.tensors("driver.keep#1.", false).empty());
  CHECK(last.tensors("driver.", true).empty());
  CHECK(error("for step in job('a'):steps(2) do error('no step is left') end; assert(kept.n == 4)") == "");
  CHECK_THAT(error("keep{1, 2}"), Contains("keep{} takes names"));
  CHECK_THAT(error("kept.f = print; for step in job('b'):steps(1) do end"),
             Contains("a function cannot travel"));
  CHECK_THAT(error("kept.f = nil; for step in job('a'):steps(1) do end"),
             Contains("the loop ends at step 1"));
  CHECK_THAT(error("for step in job('c'):steps(-1) do end"), Contains("expected 0 or more"));
}

TEST_CASE("a job ends with its cluster") {
  repl::Interpreter interpreter(Cluster::in_process(1),
                                [](int workers) { return Cluster::in_process(workers); }, {});
  const auto out = interpreter.run("local j = job(); local steps = j:steps(3); steps(); cluster(1); steps()",
                                   "=test", false);
  CHECK_THAT(out.error, Contains("[job] its cluster has ended"));
}

TEST_CASE("the shell's flags of checkpoints are read, and refused without a folder") {
  const auto parse = [](const std::vector<std::string>& arguments, repl::ReplOptions& options) {
    std::ostringstream out, err;
    const auto code = repl::parse_repl(arguments, options, out, err);
    return code ? std::to_string(*code) + " " + err.str() : "";
  };
  repl::ReplOptions options;
  CHECK(parse({"-n", "3", "--checkpoint", "run", "--resume", "--checkpoint-every=5", "--checkpoint-keep", "1",
               "a.lua"},
              options) == "");
  const Checkpoints& c = options.checkpoints;
  CHECK((c.dir == "run" && c.resume && c.every == 5 && c.keep == 1 && options.script == "a.lua"));
  CHECK_THAT(parse({"--resume"}, options = {}),
             Contains("2 troupe repl: --resume, --checkpoint-every and --checkpoint-keep need --checkpoint"));
  CHECK_THAT(parse({"--checkpoint-keep", "3"}, options = {}), Contains("need --checkpoint"));
  CHECK_THAT(parse({"--checkpoint="}, options = {}), Contains("--checkpoint needs a folder"));
  CHECK_THAT(parse({"--checkpoint"}, options = {}), Contains("--checkpoint needs a folder"));
  CHECK_THAT(parse({"--checkpoint-every", "0"}, options = {}), Contains("needs a number above 0, got '0'"));
}

TEST_CASE("flags of the shell behind a program are refused, and its own are its own") {
  const auto parse = [](const std::vector<std::string>& arguments, repl::ReplOptions& options) {
    std::ostringstream out, err;
    const auto code = repl::parse_repl(arguments, options, out, err);
    return code ? std::to_string(*code) + " " + err.str() : "";
  };
  repl::ReplOptions options;
  for (const char* flag : {"-e", "-i", "-n", "-w"}) {
    CHECK_THAT(parse({"./prog", "--its", "own", flag, "2"}, options = {}),
               Contains("2 troupe repl: " + std::string(flag) + " stands behind the program") &&
                   Contains("write " + std::string(flag) +
                            " before ./prog, or, if the program has such a flag, "
                            "-- before it"));
    CHECK(parse({"-e", "print(1)", "./prog", "--its", "--", flag, "2", "a.lua", "-e"}, options = {}) == "");
    CHECK(options.program_arguments == std::vector<std::string>{"--its", flag, "2"});
    CHECK((options.code == "print(1)" && options.script == "a.lua"));
    CHECK(options.arguments == std::vector<std::string>{"a.lua", "-e"});
  }
  CHECK(parse({"./prog", "--checkpoint", "run", "a.lua"}, options = {}) == "");
  CHECK(options.checkpoints.dir == "");
}

TEST_CASE("an error of C++ that ends a script gives its exit code, and one that was caught gives none") {
  repl::Interpreter interpreter(Cluster::in_process(2), {}, {});
  const auto code = [&](const std::string& text) { return interpreter.run(text, "=test", false).code; };
  CHECK(code("print()") == 0);
  CHECK(code("error('mine')") == kExitFailed);
  CHECK(code("syntax error") == kExitFailed);
  CHECK(code("ops.matmul(1)") == kExitFailed);
  CHECK(code("a = spawn('Module', 'w1', nn.linear(2, 2)); a:forward(ops.ones(1, 2)):get()") == 0);
  interpreter.cluster().worker().members().mark_lost(1, Error(ErrorKind::disconnected, "w1 was killed"));
  const std::string lost = "a:forward(ops.ones(1, 2)):get()";
  CHECK(code(lost) == kExitPeerLost);
  CHECK(code("local ok, why = pcall(function() " + lost + " end); error(why, 0)") == kExitPeerLost);
  CHECK(code("coroutine.wrap(function() " + lost + " end)()") == kExitPeerLost);
  CHECK(code("local ok, why = pcall(function() " + lost + " end); error('mine')") == kExitFailed);
  CHECK(code("local ok, why = pcall(function() " + lost + " end); error({why})") == kExitFailed);
  CHECK(code("local ok, why = pcall(function() " + lost + " end)") == 0);
}

TEST_CASE("a script whose checkpoint is refused has the exit code that says so") {
  const testing::Folder folder;
  const auto code = [&](const std::string& text) {
    repl::Interpreter interpreter(
        Cluster::in_process(1, {}, {.checkpoints = {(folder.path / "run").string(), true, 1, 2}}), {}, {});
    return interpreter.run(text, "=test", false).code;
  };
  CHECK(code("kept = keep{n = 1}; for step in job():steps(1) do end") == 0);
  CHECK(code("for step in job():steps(2) do end") == kExitCheckpoint);
}
