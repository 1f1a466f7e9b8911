// LAPACK, loaded when it is first needed: matrices by columns, as Fortran has them.
#pragma once
#include <cstddef>
#include <cstdint>

namespace troupe::ops::on_cpu {

/// The routines for float or double; their arguments are LAPACK's. `info` above 0: a factorization could not
/// be completed, or an iteration did not end.
template <class T>
struct Lapack {
  using Int = int32_t;
  void (*potrf)(const char* uplo, const Int* n, T* a, const Int* lda, Int* info, size_t);
  void (*getrf)(const Int* m, const Int* n, T* a, const Int* lda, Int* pivots, Int* info);
  void (*getri)(const Int* n, T* a, const Int* lda, const Int* pivots, T* work, const Int* lwork, Int* info);
  void (*getrs)(const char* trans, const Int* n, const Int* nrhs, const T* a, const Int* lda,
                const Int* pivots, T* b, const Int* ldb, Int* info, size_t);
  void (*geqrf)(const Int* m, const Int* n, T* a, const Int* lda, T* tau, T* work, const Int* lwork,
                Int* info);
  void (*orgqr)(const Int* m, const Int* n, const Int* k, T* a, const Int* lda, const T* tau, T* work,
                const Int* lwork, Int* info);
  void (*gesdd)(const char* jobz, const Int* m, const Int* n, T* a, const Int* lda, T* s, T* u,
                const Int* ldu, T* vt, const Int* ldvt, T* work, const Int* lwork, Int* iwork, Int* info,
                size_t);
  void (*syevd)(const char* jobz, const char* uplo, const Int* n, T* a, const Int* lda, T* w, T* work,
                const Int* lwork, Int* iwork, const Int* liwork, Int* info, size_t, size_t);
};

/// `unimplemented` that begins with [name] and says what to install, where no library has it.
template <class T>
const Lapack<T>& lapack(const char* name);

}  // namespace troupe::ops::on_cpu
