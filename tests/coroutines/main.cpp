// Runs every shape in a process of its own, so that one that is compiled wrongly spoils no other, and
// compares what goes wrong with what is known of this compiler.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tests/coroutines/known.h"
#include "tests/coroutines/shape.h"

using namespace troupe::testing;

namespace {

// 0: as it should be.
int run_here(const char* name) {
  for (const Shape& s : shapes()) {
    if (std::strcmp(s.name, name) != 0) continue;
    const int result = s.run();
    const auto compare = [](const char* what, int got, int expected) {
      if (got != expected)
        book.wrong.push_back(std::string(what) + ": " + std::to_string(got) + ", expected " +
                             std::to_string(expected));
    };
    compare("result", result, s.result);
    compare("objects made", book.made, s.made);
    compare("objects destroyed", book.ended, s.made);
    compare("objects left", static_cast<int>(book.living.size()), 0);
    for (const std::string& what : book.wrong) std::printf("    %s\n", what.c_str());
    return book.wrong.empty() ? 0 : 1;
  }
  std::printf("no shape \"%s\"\n", name);
  return 2;
}

// Whether the shape is compiled rightly.
bool is_right(const char* program, const Shape& shape) {
  const char* arguments[] = {program, "--one", shape.name, nullptr};
  std::fflush(stdout);
  pid_t child = 0;
  int status = 0;
  if (posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, const_cast<char**>(arguments), environ) != 0 ||
      waitpid(child, &status, 0) != child) {
    std::perror("coroutine_shapes: cannot start itself");
    std::exit(2);
  }
  if (WIFSIGNALED(status)) std::printf("    ended by signal %d\n", WTERMSIG(status));
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count == 3 && std::strcmp(arguments[1], "--one") == 0) return run_here(arguments[2]);
  const std::vector<const char*> known = known_wrong();
  int surprises = 0;
  for (const Shape& s : shapes()) {
    const bool expected = std::none_of(known.begin(), known.end(),
                                       [&](const char* name) { return std::strcmp(name, s.name) == 0; });
    const bool right = is_right(arguments[0], s);
    const char* verdict = right ? "right" : "wrong";
    std::printf("%s%s: %s\n", verdict,
                right == expected ? expected ? "" : ", as is known" : ", NOT AS IS KNOWN", s.name);
    surprises += right != expected;
  }
  for (const char* name : known)
    if (std::none_of(shapes().begin(), shapes().end(),
                     [&](const Shape& s) { return std::strcmp(name, s.name) == 0; })) {
      std::printf("known.h names a shape that is not there: %s\n", name);
      ++surprises;
    }
  std::printf("%s: %zu shapes, %zu known to be wrong, %d not as is known\n", compiler(), shapes().size(),
              known.size(), surprises);
  return surprises == 0 ? 0 : 1;
}
