#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eigenformer/autograd/ops/elementwise/arithmetic.hpp"
#include "eigenformer/autograd/ops/linear/matmul.hpp"
#include "eigenformer/autograd/ops/reduction/reduce.hpp"
#include "eigenformer/autograd/ops/shape/axes.hpp"
#include "eigenformer/autograd/ops/shape/rearrange.hpp"
#include "eigenformer/autograd/ops/shape/shape.hpp"
#include "eigenformer/autograd/tape/operand.hpp"

// Sums of products over named dimensions, each made of batched matrix products.

namespace eigenformer {

namespace detail {

// A letter for each dimension of the operands and of the result; those of an ellipsis are '\1', '\2', ...
struct Contraction {
  std::vector<std::string> operands;
  std::string result;
};

inline bool has(const std::string& letters, char c) { return letters.find(c) != std::string::npos; }

// Reads an equation for operands of these shapes. As in PyTorch: without "->" the result has the dimensions
// of the ellipsis and then, in the order of their codes, the letters that occur once; dimensions of size 1
// broadcast.
class EinsumParser {
 public:
  EinsumParser(std::string_view equation, const std::vector<Shape>& shapes)
      : equation_(equation), shapes_(shapes) {}

  EIGENFORMER_NOINLINE Contraction parse() {
    read();
    for (std::size_t n = 0; n < shapes_.size(); ++n) {
      name_ellipsis(n);
      unify_sizes(n);
      all_ += found_.operands[n];
    }
    complete_result();
    return std::move(found_);
  }

 private:
  static constexpr char last = static_cast<char>(Shape::max_rank);

  [[noreturn]] void fail(const std::string& what) const {
    throw ValueError("einsum", {"equation \"", equation_, "\" ", what});
  }
  std::string in_operand(std::size_t n) const {
    return " of operand " + std::to_string(n) + " with shape " + shapes_[n].str();
  }

  // Finds the letters of operands and result, with '.' for an ellipsis.
  void read() {
    std::string* letters = &found_.operands.emplace_back();
    for (std::size_t i = 0; i < equation_.size(); ++i) {
      const char c = equation_[i];
      const std::string_view rest = equation_.substr(i);
      if (c == ' ') continue;
      if (rest.starts_with("...")) {
        *letters += '.';
        i += 2;
      } else if (rest.starts_with("->") && !explicit_result_) {
        explicit_result_ = true;
        letters = &found_.result;
        i += 1;
      } else if (c == ',') {
        if (explicit_result_) fail("has a comma in the result, expected one result");
        letters = &found_.operands.emplace_back();
      } else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
        *letters += c;
      } else {
        fail("has '" + std::string(1, c) + "' at position " + std::to_string(i) +
             ", expected letters, commas, one arrow and ellipses of three dots");
      }
    }
    if (found_.operands.size() != shapes_.size()) {
      fail("has subscripts of " + std::to_string(found_.operands.size()) + " operands, " +
           std::to_string(shapes_.size()) + " were given");
    }
    if (std::count(found_.result.begin(), found_.result.end(), '.') > 1)
      fail("has two ellipses in the result");
  }

  // Gives the dimensions of an operand's ellipsis their letters.
  void name_ellipsis(std::size_t n) {
    std::string& letters = found_.operands[n];
    const std::size_t at = letters.find('.');
    const index_t named = static_cast<index_t>(letters.size()) - (at == std::string::npos ? 0 : 1);
    const index_t more = shapes_[n].rank() - named;
    if (at != std::string::npos && letters.find('.', at + 1) != std::string::npos)
      fail("has two ellipses among the subscripts" + in_operand(n));
    if (more < 0 || (more > 0 && at == std::string::npos))
      fail("has " + std::to_string(named) + " subscripts" + in_operand(n) +
           ", expected as many as dimensions");
    if (at == std::string::npos) return;
    const char first = static_cast<char>(last + 1 - static_cast<char>(more));
    first_ = std::min(first_, first);
    letters.replace(at, 1, ellipsis_from(first));
  }
  static std::string ellipsis_from(char first) {
    std::string dims;
    for (char c = first; c <= last; ++c) dims += c;
    return dims;
  }

  // Requires that an operand's sizes agree with each other and with those of earlier operands.
  void unify_sizes(std::size_t n) {
    const std::string& letters = found_.operands[n];
    for (std::size_t i = 0; i < letters.size(); ++i) {
      const index_t size = shapes_[n][static_cast<index_t>(i)];
      index_t& known = sizes_[static_cast<std::size_t>(letters[i])];
      // Two dimensions of one operand must agree, also if one of them is 1.
      const std::size_t before = letters.find(letters[i]);
      const bool repeated = before < i;
      const index_t expected = repeated ? shapes_[n][static_cast<index_t>(before)] : known;
      if (size != expected && (repeated || (size != 1 && known != 1))) {
        const std::string name =
            letters[i] <= last ? "an ellipsis" : "subscript '" + letters.substr(i, 1) + "'";
        throw ShapeError("einsum",
                         {"equation \"", equation_, "\": ", name, in_operand(n), " has size ", size,
                          ", expected ", expected, " as before"},
                         shapes_);
      }
      if (size != 1) known = size;
    }
  }

  void complete_result() {
    std::string& result = found_.result;
    if (!explicit_result_) {
      result = ellipsis_from(first_);
      for (char c = 'A'; c <= 'z'; ++c) {
        if (std::count(all_.begin(), all_.end(), c) == 1) result += c;
      }
    } else if (const std::size_t at = result.find('.'); at != std::string::npos) {
      result.replace(at, 1, ellipsis_from(first_));
    }
    for (const char c : result) {
      const std::string what = "has subscript '" + std::string(1, c) + "' of the result ";
      if (!has(all_, c)) fail(what + "in no operand");
      if (std::count(result.begin(), result.end(), c) > 1) fail(what + "twice, expected once");
    }
  }

  const std::string_view equation_;
  const std::vector<Shape>& shapes_;
  Contraction found_;
  bool explicit_result_ = false;
  std::vector<index_t> sizes_ = std::vector<index_t>(128, 1);  // of each letter
  std::string all_;                                            // the letters of all operands
  char first_ = last + 1;                                      // letter of the longest ellipsis
};

// A tensor and a letter for each of its dimensions.
template <class T>
struct Lettered {
  Var<T> x;
  std::string letters;

  // Moves its dimensions into another order of the same letters.
  void order_as(const std::string& order) {
    if (order == letters) return;
    std::vector<index_t> axes;
    for (const char c : order) axes.push_back(static_cast<index_t>(letters.find(c)));
    x = permute(x, axes);
    letters = order;
  }
  // Sums over the dimensions whose letters are not in `keep`.
  void sum_others(const std::string& keep) {
    std::vector<index_t> axes;
    std::string left;
    for (std::size_t i = 0; i < letters.size(); ++i) {
      if (has(keep, letters[i])) {
        left += letters[i];
      } else {
        axes.push_back(static_cast<index_t>(i));
      }
    }
    if (!axes.empty()) x = sum(x, axes);
    letters = left;
  }
  // The diagonals of dimensions with the same letter.
  void take_diagonals() {
    for (std::size_t i = 0; i < letters.size();) {
      const char c = letters[i];
      const std::size_t j = letters.find(c, i + 1);
      if (j == std::string::npos) {
        ++i;
        continue;
      }
      x = diagonal(x, 0, static_cast<index_t>(i), static_cast<index_t>(j));
      letters.erase(j, 1).erase(i, 1) += c;
    }
  }
  index_t size(char c) const { return x.dim(static_cast<index_t>(letters.find(c))); }
  // Leaves out dimensions of size 1 that the other tensor has with another size.
  void drop_ones(const Lettered& other) {
    Shape shape = x.shape();
    for (std::size_t i = letters.size(); i-- > 0;) {
      const char c = letters[i];
      if (shape[static_cast<index_t>(i)] != 1 || !has(other.letters, c) || other.size(c) == 1) continue;
      shape = shape.without(static_cast<index_t>(i));
      letters.erase(i, 1);
    }
    if (shape.rank() != x.rank()) x = reshape(x, shape);
  }
  index_t numel(const std::string& of) const {
    index_t n = 1;
    for (const char c : of) n *= size(c);
    return n;
  }
};

// The products of a and b summed over the letters that are not in `keep`, as products of matrices (rows,
// inner) and (inner, columns) for each entry of the dimensions that both have and the result keeps.
template <class T>
Lettered<T> contract(const char* op, Lettered<T> a, Lettered<T> b, const std::string& keep) {
  a.drop_ones(b);
  b.drop_ones(a);
  a.sum_others(keep + b.letters);
  b.sum_others(keep + a.letters);
  std::string batch, rows, inner, columns;
  for (const char c : a.letters) (!has(b.letters, c) ? rows : has(keep, c) ? batch : inner) += c;
  for (const char c : b.letters) {
    if (!has(a.letters, c)) columns += c;
  }
  const std::string letters = batch + rows + columns;
  std::vector<index_t> sizes;
  for (const char c : letters) sizes.push_back((has(a.letters, c) ? a : b).size(c));
  if (static_cast<index_t>(sizes.size()) > Shape::max_rank) {
    throw ShapeError(op,
                     {"the product of tensors of shapes ", a.x.shape(), " and ", b.x.shape(), " has ",
                      sizes.size(), " dimensions, expected at most ", Shape::max_rank},
                     {a.x.shape(), b.x.shape()});
  }
  const Shape shape{std::span<const index_t>(sizes)};
  const index_t count = a.numel(batch), m = a.numel(rows), k = a.numel(inner), n = b.numel(columns);
  const bool transpose_a = a.letters == batch + inner + rows,
             transpose_b = b.letters != batch + inner + columns;
  if (!transpose_a) a.order_as(batch + rows + inner);
  if (transpose_b) b.order_as(batch + columns + inner);
  Var<T> y;
  if (inner.empty()) {
    y = multiply(reshape(a.x, Shape{count, m, 1}), reshape(b.x, Shape{count, 1, n}));
  } else if (m == 1 && n == 1 && count > 1) {
    y = sum(multiply(reshape(a.x, Shape{count, k}), reshape(b.x, Shape{count, k})), {1});
  } else {
    // One matrix has no batch, which is the fastest product.
    const auto matrices = [&](const Var<T>& x, index_t r, index_t c) {
      return reshape(x, batch.empty() ? Shape{r, c} : Shape{count, r, c});
    };
    y = matmul(matrices(a.x, transpose_a ? k : m, transpose_a ? m : k),
               matrices(b.x, transpose_b ? n : k, transpose_b ? k : n), transpose_a, transpose_b);
  }
  return {reshape(y, shape), letters};
}

template <class T>
Var<T> contracted(std::string_view equation, const std::vector<Var<T>>& x) {
  const OpScope scope = scope_of("einsum");
  std::vector<Shape> shapes;
  for (const Var<T>& v : x) {
    require_defined("einsum", v);
    shapes.push_back(v.shape());
  }
  const Contraction plan = EinsumParser(equation, shapes).parse();
  Lettered<T> y{x[0], plan.operands[0]};
  y.take_diagonals();
  for (std::size_t i = 1; i < x.size(); ++i) {
    std::string keep = plan.result;
    for (std::size_t j = i + 1; j < x.size(); ++j) keep += plan.operands[j];
    Lettered<T> next{x[i], plan.operands[i]};
    next.take_diagonals();
    y = contract("einsum", std::move(y), std::move(next), keep);
  }
  y.sum_others(plan.result);
  y.order_as(plan.result);
  return y.x;
}

// The product over pairs of dimensions, the other dimensions of a before those of b.
template <class T>
Var<T> product_over_axes(const char* op, const Var<T>& a, const Var<T>& b, const std::vector<index_t>& axes_a,
                         const std::vector<index_t>& axes_b) {
  const OpScope scope = scope_of(op, a, b);
  if (axes_a.size() != axes_b.size()) {
    throw ValueError(
        op, {axes_a.size(), " axes of one operand and ", axes_b.size(), " of the other, expected as many"});
  }
  std::string of_a, of_b, keep;
  for (index_t i = 0; i < a.rank(); ++i) of_a += static_cast<char>('a' + i);
  for (index_t i = 0; i < b.rank(); ++i) of_b += static_cast<char>('A' + i);
  keep = of_a + of_b;
  for (std::size_t i = 0; i < axes_a.size(); ++i) {
    const index_t p = axis_of(op, axes_a[i], a.shape()), q = axis_of(op, axes_b[i], b.shape());
    const char c = static_cast<char>('a' + p);
    char& paired = of_b[static_cast<std::size_t>(q)];
    if (!has(keep, c) || paired >= 'a') throw ValueError(op, "an axis is named twice, expected once");
    if (a.dim(p) != b.dim(q)) {
      throw ShapeError(op,
                       {"axis ", axes_a[i], " of shape ", a.shape(), " and axis ", axes_b[i], " of shape ",
                        b.shape(), " have different sizes, expected equal ones"},
                       {a.shape(), b.shape()});
    }
    keep.erase(keep.find(c), 1);
    keep.erase(keep.find(paired), 1);
    paired = c;
  }
  return contract<T>(op, {a, of_a}, {b, of_b}, keep).x;
}

template <class T>
Var<T> kronecker(const Var<T>& a, const Var<T>& b) {
  const OpScope scope = scope_of("kron", a, b);
  const index_t rank = std::max(a.rank(), b.rank());
  if (2 * rank > Shape::max_rank) {
    throw ShapeError("kron",
                     {"operands of shapes ", a.shape(), " and ", b.shape(), " must have rank 3 at most"},
                     {a.shape(), b.shape()});
  }
  if (rank == 0) return multiply(a, b);
  // a of (a0, 1, a1, 1, ...) times b of (1, b0, 1, b1, ...), but for the last dimension, whose entries are
  // repeated, so that the product has a long inner loop.
  const index_t last_a = a.rank() == 0 ? 1 : a.dim(-1), last_b = b.rank() == 0 ? 1 : b.dim(-1);
  std::vector<index_t> of_a, of_b, sizes;
  for (index_t i = -rank; i < -1; ++i) {
    of_a.insert(of_a.end(), {i < -a.rank() ? 1 : a.dim(i), 1});
    of_b.insert(of_b.end(), {1, i < -b.rank() ? 1 : b.dim(i)});
    sizes.push_back(of_a[of_a.size() - 2] * of_b.back());
  }
  for (std::vector<index_t>* shape : {&of_a, &of_b, &sizes}) shape->push_back(last_a * last_b);
  const Var<T> x = repeat(a.rank() == 0 ? reshape(a, {1}) : a, last_b, -1);
  const Var<T> y = tile(b, std::vector<index_t>{last_a});
  return reshape(multiply(reshape(x, Shape(of_a)), reshape(y, Shape(of_b))), Shape(sizes));
}

}  // namespace detail

/// Einstein's summation: products of the operands' elements, summed over the subscripts that the result does
/// not have, as PyTorch's einsum. "bij,bjk->bik" is a batched matrix product, "ii->i" a diagonal,
/// "...ij->...ji" a transpose; without "->" the result has the dimensions of the ellipsis and then, capital
/// letters first, the subscripts that occur once.
///
/// Dimensions of size 1 broadcast. Operands are contracted from left to right, each pair as a batched matrix
/// product; more than two are faster in an order with small intermediate results. Throws ValueError for an
/// equation that cannot be read or does not fit the ranks, ShapeError for sizes that differ and for a product
/// of more than 6 dimensions.
template <class... X>
requires Operands<X...>
[[nodiscard]] Var<element_t<X...>> einsum(std::string_view equation, const X&... x) {
  return detail::contracted(equation, std::vector<Var<element_t<X...>>>{x...});
}
/// The same for a vector of operands. Throws also for an empty one.
template <class T>
[[nodiscard]] Var<T> einsum(std::string_view equation, const std::vector<Var<T>>& x) {
  return detail::contracted(equation, x);
}

/// Products summed over the last `count` dimensions of a and the first of b, in their order. Throws
/// ValueError for a count above a rank, ShapeError for sizes that differ.
template <class A, class B>
requires Operands<A, B>
[[nodiscard]] Var<element_t<A>> tensordot(const A& a, const B& b, index_t count = 2) {
  const Var<element_t<A>>&u = a, &v = b;
  detail::require_defined("tensordot", u, v);
  if (count < 0 || count > std::min(u.rank(), v.rank())) {
    throw ValueError("tensordot", {count, " axes of shapes ", u.shape(), " and ", v.shape(),
                                   ", expected at least 0 and no more than each has"});
  }
  std::vector<index_t> last, first;
  for (index_t i = 0; i < count; ++i) {
    last.push_back(u.rank() - count + i);
    first.push_back(i);
  }
  return detail::product_over_axes("tensordot", u, v, last, first);
}
/// Products summed over dimension axes_a[i] of a and axes_b[i] of b for each i. The result has the other
/// dimensions of a, then those of b. Throws IndexError for an axis outside the rank, ValueError for one named
/// twice and for lists of different lengths, ShapeError for sizes that differ.
template <class A, class B>
requires Operands<A, B>
[[nodiscard]] Var<element_t<A>> tensordot(const A& a, const B& b, const std::vector<index_t>& axes_a,
                                          const std::vector<index_t>& axes_b) {
  return detail::product_over_axes<element_t<A>>("tensordot", a, b, axes_a, axes_b);
}

/// The products of all pairs of elements of two vectors, (m) and (n) to (m, n). Throws ShapeError for another
/// rank.
template <class A, class B>
requires Operands<A, B>
[[nodiscard]] Var<element_t<A>> outer(const A& a, const B& b) {
  const Var<element_t<A>>&u = a, &v = b;
  detail::require_defined("outer", u, v);
  if (u.rank() != 1 || v.rank() != 1) {
    throw ShapeError("outer", {"operands of shapes ", u.shape(), " and ", v.shape(), " must have rank 1"},
                     {u.shape(), v.shape()});
  }
  return detail::product_over_axes("outer", u, v, {}, {});
}

/// Products summed over the last dimensions, (..., n) and (---, n) to (..., ---); of a scalar, the product.
/// Throws ShapeError for sizes that differ.
template <class A, class B>
requires Operands<A, B>
[[nodiscard]] Var<element_t<A>> inner(const A& a, const B& b) {
  const Var<element_t<A>>&u = a, &v = b;
  detail::require_defined("inner", u, v);
  if (u.rank() == 0 || v.rank() == 0) return multiply(u, v);
  return detail::product_over_axes("inner", u, v, {-1}, {-1});
}

/// Kronecker product: b times each element of a, (m, n) and (p, q) to (m p, n q); the smaller rank gets
/// dimensions of size 1 in front. Throws ShapeError for a rank above 3.
template <class A, class B>
requires Operands<A, B>
[[nodiscard]] Var<element_t<A>> kron(const A& a, const B& b) { return detail::kronecker<element_t<A>>(a, b); }

/// The sum of diagonal k of two dimensions. Arguments and errors as for diagonal().
template <Operand X>
[[nodiscard]] Var<element_t<X>> trace(const X& x, index_t k = 0, index_t axis1 = 0, index_t axis2 = 1) {
  const Var<element_t<X>>& v = x;
  detail::require_defined("trace", v);
  return sum(diagonal(v, k, axis1, axis2), {-1});
}

}  // namespace eigenformer
