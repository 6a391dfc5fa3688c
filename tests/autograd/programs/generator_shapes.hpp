#pragma once

#include "autograd/programs/generator.hpp"

namespace eigenformer::testing::programs {

inline bool Generator::fill_shapes(Node& node) {
  const int a = any(node.op == Op::sum || node.op == Op::mean || node.op == Op::max ||
                            node.op == Op::reshape || node.op == Op::permute || node.op == Op::stack
                        ? 0
                        : 1);
  node.in = {a};
  const Shape s = shape_of(a);
  const index_t rank = s.rank(), axis = below(rank);
  switch (node.op) {
    case Op::sum:
    case Op::mean:
    case Op::max: {
      if (s.numel() == 0 && node.op != Op::sum) return false;
      node.n = {below(2)};
      std::vector<index_t> dims;
      const bool all = rank == 0 || chance(0.2);
      for (index_t d = 0; d < rank; ++d) {
        const bool reduced = all || chance(0.5);
        if (reduced && !all) node.n.push_back(either(d, rank));
        if (!reduced || node.n[0] != 0) dims.push_back(reduced ? 1 : s[d]);
      }
      if (!all && node.n.size() == 1) return false;
      node.shape = Shape(dims);
      return true;
    }
    case Op::reshape: {
      std::vector<index_t> dims;
      index_t rest = s.numel();
      while (rest > 1 && dims.size() < 3) {
        std::vector<index_t> divisors;
        for (index_t d = 1; d <= rest; ++d)
          if (rest % d == 0) divisors.push_back(d);
        dims.push_back(divisors[static_cast<std::size_t>(below(static_cast<index_t>(divisors.size())))]);
        rest /= dims.back();
      }
      if (rest != 1 || chance(0.3)) dims.push_back(rest);
      node.shape = Shape(dims);
      return true;
    }
    case Op::permute: {
      std::vector<index_t> order(static_cast<std::size_t>(rank));
      std::iota(order.begin(), order.end(), index_t{0});
      random_.shuffle(std::span<index_t>(order));
      std::vector<index_t> dims;
      for (index_t& d : order) {
        dims.push_back(s[d]);
        d = either(d, rank);
      }
      node.n = order;
      node.shape = Shape(dims);
      return true;
    }
    case Op::transpose: {
      const index_t other = below(rank);
      node.n = {either(axis, rank), either(other, rank)};
      node.shape = s.with(axis, s[other]).with(other, s[axis]);
      return true;
    }
    case Op::slice: {
      const index_t begin = below(s[axis] + 1), end = begin + below(s[axis] - begin + 1);
      node.n = {axis, begin, end};
      node.shape = s.with(axis, end - begin);
      return true;
    }
    case Op::concat: {
      index_t total = s[axis];
      for (index_t parts = below(3); parts > 0; --parts) {
        const int part = chance(0.3) ? a : of_shape(s.with(axis, chance(0.5) ? s[axis] : size()));
        node.in.push_back(part);
        total += shape_of(part)[axis];
      }
      node.n = {either(axis, rank)};
      node.shape = s.with(axis, total);
      return node.shape.numel() <= most();
    }
    case Op::stack: {
      for (index_t parts = below(3); parts > 0; --parts) node.in.push_back(chance(0.3) ? a : of_shape(s));
      const index_t at = below(rank + 1);
      node.n = {either(at, rank + 1)};
      node.shape = s.inserted(at, static_cast<index_t>(node.in.size()));
      return node.shape.numel() <= most();
    }
    case Op::embedding: {
      if (rank != 2 || s[0] == 0) return false;
      const Shape ids = shape(0, 3);
      if (ids.numel() * s[1] > most()) return false;
      node.n = {chance(0.5) ? -1 : below(s[0])};
      node.n.insert(node.n.end(), ids.begin(), ids.end());
      node.x = {chance(0.5) ? 1 : 1.75};
      for (index_t i = 0; i < ids.numel(); ++i) node.ids.push_back(static_cast<std::int32_t>(below(s[0])));
      node.shape = ids.inserted(-1, s[1]);
      return true;
    }
    case Op::gather: {
      if (s[axis] == 0) return false;
      std::vector<index_t> dims(s.begin(), s.end());
      for (index_t& d : dims) d = chance(0.7) ? d : below(d + 1);
      dims[static_cast<std::size_t>(axis)] = size();
      node.shape = Shape(dims);
      node.n = {either(axis, rank)};
      for (index_t i = 0; i < node.shape.numel() && i <= most(); ++i)
        node.ids.push_back(static_cast<std::int32_t>(below(s[axis])));
      return node.shape.numel() <= most();
    }
    case Op::index_select: {
      if (s[0] == 0) return false;
      for (index_t i = size(); i > 0; --i) node.ids.push_back(static_cast<std::int32_t>(below(s[0])));
      node.shape = s.with(0, static_cast<index_t>(node.ids.size()));
      return node.shape.numel() <= most();
    }
    case Op::pool: {
      node.layouts = {layout(below(4))};
      node.in = {of_shape(rows_of(node.layouts[0], size()))};
      node.n = {below(2)};
      node.shape = Shape{node.layouts[0].batch(), shape_of(node.in[0])[-1]};
      return true;
    }
    default:
      return false;
  }
}

}  // namespace eigenformer::testing::programs
