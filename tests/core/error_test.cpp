// Errors: kinds, trails, what is made of other exceptions, and suggestions.
#include "core/base/error.h"
#include "core/base/out_of_memory.h"

#include <catch2/catch.hpp>
#include <stdexcept>

using namespace troupe;

namespace {

struct Odd : std::runtime_error {
  using runtime_error::runtime_error;
};

template <class E>
Error converted(E&& thrown) {
  try {
    throw std::forward<E>(thrown);
  } catch (...) {
    return current_error();
  }
}

}  // namespace

TEST_CASE("every kind has a name of its own") {
  const char* names[] = {"invalid",      "failed",    "overloaded",   "deadline",
                         "disconnected", "cancelled", "unimplemented"};
  static_assert(std::size(names) == kErrorKindCount);
  for (int i = 0; i < kErrorKindCount; ++i) CHECK(name(static_cast<ErrorKind>(i)) == names[i]);
  CHECK(name(static_cast<ErrorKind>(200)) == "?");
}

TEST_CASE("an error gathers the calls that it crossed, innermost first") {
  const Error e = Error(ErrorKind::failed, "[x] broke").crossing("inner on w1").crossing("outer on w0");
  CHECK(e.kind() == ErrorKind::failed);
  CHECK(e.message() == "[x] broke");
  CHECK(e.trail() == std::vector<std::string>{"inner on w1", "outer on w0"});
  CHECK(std::string(e.what()) == "[x] broke\n  in inner on w1\n  in outer on w0");
  CHECK(e.worker().empty());
  const Error arrived(e.kind(), e.message(), e.trail(), "w2");
  CHECK(std::string(arrived.what()) == e.what());
  CHECK(arrived.worker() == "w2");
}

TEST_CASE("an error holds nothing that a terminal obeys") {
  const Error e =
      Error(ErrorKind::invalid, "[x] \x1b[2J\r a\tb\n" + std::string(1, '\0') + "c\x7f").crossing("f\ron w1");
  CHECK(std::string(e.what()) == "[x] \\x1b[2J\\r a\tb\n\\x00c\\x7f\n  in f\\ron w1");
}

TEST_CASE("an error can name the worker that was lost") {
  const Error e = Error(ErrorKind::disconnected, "[net] w1 is gone").with_worker("w1");
  CHECK(e.worker() == "w1");
  CHECK(std::string(e.what()) == "[net] w1 is gone");
}

TEST_CASE("the exception in flight becomes an error") {
  const Error own = converted(Error(ErrorKind::deadline, "[call] late", {"f on w1"}, "w1"));
  CHECK(own.kind() == ErrorKind::deadline);
  CHECK(own.trail().size() == 1);
  CHECK(own.worker() == "w1");
  const Error standard = converted(std::out_of_range("too far"));
  CHECK(standard.kind() == ErrorKind::failed);
  CHECK(standard.message() == "std::out_of_range: too far");
  CHECK_THAT(converted(Odd("strange")).message(), Catch::EndsWith("Odd: strange"));
  CHECK(converted(42).kind() == ErrorKind::failed);
  CHECK(converted(std::bad_alloc()).message() == "out of memory");
  CHECK(converted(std::bad_array_new_length()).message() == "out of memory");
  CHECK(converted(OutOfMemory("[x] out of memory: 5 bytes asked for")).message() ==
        "[x] out of memory: 5 bytes asked for");
  CHECK(converted(42).message() == "an exception that is no std::exception");
}

TEST_CASE("throwing helpers throw errors of the right kind") {
  try {
    throw_error(ErrorKind::overloaded, "[queue] full");
  } catch (const std::exception& e) {
    CHECK(std::string(e.what()) == "[queue] full");
    CHECK(dynamic_cast<const Error&>(e).kind() == ErrorKind::overloaded);
  }
  CHECK_THROWS_AS(throw_invalid("[x] y"), Error);
}

TEST_CASE("the nearest known name is suggested, if any is near") {
  const std::vector<std::string> known{"matmul", "softmax", "sgd", "log_softmax", "lr"};
  CHECK(nearest("matmull", known) == "matmul");
  CHECK(nearest("sfotmax", known) == "softmax");
  CHECK(nearest("sdg", known) == "sgd");
  CHECK(nearest("softmax", known) == "softmax");
  CHECK(nearest("log_sfotmx", known) == "log_softmax");
  CHECK(nearest("lt", known) == "lr");
  CHECK(nearest("SGD", known) == "sgd");
  CHECK(nearest("LogSoftmax", known) == "log_softmax");
  CHECK(nearest("convolution", known).empty());
  CHECK(nearest(std::string(1 << 20, 'a'), known).empty());
  CHECK(nearest("xy", known).empty());
  CHECK(nearest("q", known).empty());
  CHECK(nearest("", known).empty());
  CHECK(nearest("abc", {}).empty());
}

TEST_CASE("a long text keeps its head and its tail, in whole characters, and says how long it was") {
  std::string text(300'000'000, 'x');
  text.replace(0, 5, "begin");
  text.replace(text.size() - 3, 3, "end");
  const Error e = converted(std::runtime_error(text));
  CHECK(e.message().size() < 17'000);
  CHECK(e.message().starts_with("std::runtime_error: begin"));
  CHECK(e.message().ends_with("end"));
  CHECK(e.message().find("of 300000020 bytes left out") != std::string::npos);
  const Error again(e.kind(), e.message(), {}, "");  // as it arrives elsewhere
  CHECK(again.message().size() < 17'000);

  std::string greek;
  for (int i = 0; i < 20'000; ++i) greek += "\u03b1";  // two bytes each
  for (const std::string& shift : {"", "a"}) {
    const std::string cut = Error(ErrorKind::failed, shift + greek + shift).message();
    for (size_t i = shift.size(); i + 1 < cut.size() && cut[i] != ' '; i += 2) {
      REQUIRE(cut.substr(i, 2) == "\u03b1");
    }
  }
  const std::string short_text(16'384, 'y');
  CHECK(Error(ErrorKind::failed, short_text).message() == short_text);
}

TEST_CASE("a long trail keeps its innermost and its outermost calls, and counts the others") {
  Error e(ErrorKind::failed, "[x] broke");
  for (int i = 0; i < 10'000; ++i) e = std::move(e).crossing("call " + std::to_string(i));
  REQUIRE(e.trail().size() == 64);
  CHECK(e.trail().front() == "call 0");
  CHECK(e.trail()[31] == "call 31");
  CHECK(e.trail()[32] == "... calls left out: 9937");
  CHECK(e.trail()[33] == "call 9969");
  CHECK(e.trail().back() == "call 9999");
  const Error arrived(e.kind(), e.message(), e.trail(), "");
  CHECK(arrived.trail() == e.trail());
}
