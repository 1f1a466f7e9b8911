// Which shapes a compiler is known to compile wrongly. Each is still tried: when it becomes right, or another
// one wrong, the test fails.
#pragma once
#include <vector>

namespace troupe::testing {

#define TROUPE_TEXT(x) #x
#define TROUPE_TEXT_OF(x) TROUPE_TEXT(x)

inline const char* compiler() {
#if defined(__clang__)
  return "clang++ " TROUPE_TEXT_OF(__clang_major__);
#else
  return "g++ " TROUPE_TEXT_OF(__GNUC__);
#endif
}

inline std::vector<const char*> known_wrong() {
#if defined(__clang__)
  return {};
#elif __GNUC__ <= 12
  return {"a conditional of two temporaries, by value",
          "a conditional of two temporaries, by reference",
          "a conditional of two temporaries, by rvalue reference",
          "a conditional of a temporary and a name",
          "a conditional of a name and a temporary",
          "a conditional within a conditional",
          "a conditional within a constructor's argument",
          "a conditional within a sum",
          "a conditional of strings",
          "a conditional of a string and a literal",
          "a conditional of lambdas with captures",
          "a conditional within an aggregate",
          "a conditional of aggregates",
          "a conditional whose operands wait",
          "a conditional of tasks",
          "a conditional whose condition waits",
          "a conditional of awaited objects",
          "a conditional that throws",
          "an aggregate, by value",
          "an aggregate, by reference",
          "an aggregate by name",
          "an aggregate of converted numbers",
          "an aggregate within an aggregate",
          "an aggregate with default members",
          "an aggregate with one default member",
          "an array",
          "an aggregate whose last member waits",
          "an aggregate whose first member waits",
          "a lambda with a capture",
          "a default argument with a conditional",
          "and, with the left side only",
          "or, with the left side only",
          "if and else with awaited temporaries",
          "an exception behind a temporary of the same expression",
          "a lambda with captures, called where it is written"};
#else
  return {"a conditional of lambdas with captures",
          "a conditional whose operands wait",
          "a conditional of tasks",
          "a conditional of awaited objects",
          "and, with the left side only",
          "or, with the left side only",
          "an exception within an initializer list",
          "an exception behind a temporary of the same expression",
          "a frame destroyed within an aggregate"};
#endif
}

}  // namespace troupe::testing
