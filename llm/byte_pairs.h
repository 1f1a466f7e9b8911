// Byte pair encoding (Gage 1994; Sennrich et al. 2016) of pieces of text.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace troupe::llm {

/// Tokens that are strings of bytes, and which two become one first. Const members may be called from several
/// threads.
class BytePairs {
 public:
  /// A token; each byte has to have one before encode(). `invalid` for a token that is there.
  void add(std::string bytes, int64_t id);
  /// Two tokens become one, before all that are added later. `invalid` unless all three are there.
  void add_merge(const std::string& left, const std::string& right);
  /// All merges that the tokens allow, lower ids first: what files without merges mean.
  void merge_by_id();
  /// A piece that is a token is that, whatever its merges would give.
  void take_whole_pieces() { whole_pieces_ = true; }

  /// `invalid` for a byte without a token.
  void encode(std::string_view piece, std::vector<int64_t>& ids) const;
  /// Null: there is no such token.
  const std::string* bytes_of(int64_t id) const;
  size_t size() const { return ids_.size(); }

 private:
  struct Merge {
    int64_t rank, id;
  };
  struct PairHash {
    size_t operator()(const std::pair<int64_t, int64_t>& p) const {
      return static_cast<size_t>(static_cast<uint64_t>(p.first) * 0x9e3779b97f4a7c15 ^
                                 static_cast<uint64_t>(p.second));
    }
  };
  std::unordered_map<std::string, int64_t> ids_;
  std::unordered_map<int64_t, std::string> bytes_;
  std::unordered_map<std::pair<int64_t, int64_t>, Merge, PairHash> merges_;
  std::array<int64_t, 256> of_byte_ = [] {
    std::array<int64_t, 256> none{};
    none.fill(-1);
    return none;
  }();
  int64_t next_rank_ = 0;
  bool whole_pieces_ = false;
};

}  // namespace troupe::llm
