#include "eigenformer/autograd/ops/shape/gather.hpp"

#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "autograd/op_check.hpp"

using namespace eigenformer;
using namespace eigenformer::testing;

TEST_CASE("embedding: gradients with repeats, scale and a padding row") {
  const auto ids = Tensor<std::int32_t>::from({2, 5}, {3, 0, 3, 22, 1, 3, 7, 0, 0, 11});
  check_op([&](const Vars& v) { return embedding(v[0], ids); }, {random({23, 7})});
  check_op([&](const Vars& v) { return embedding(v[0], ids, 3.5); }, {random({23, 7})});
  check_op([&](const Vars& v) { return embedding(v[0], ids) * embedding(v[0], ids, 2); }, {random({23, 3})});
  check_op([&](const Vars& v) { return embedding(v[0], Tensor<std::int32_t>::scalar(2)); }, {random({4, 3})});
}

TEST_CASE_TEMPLATE("embedding: values", T, float, double) {
  const Var<T> table = Tensor<T>::arange(12).reshape({4, 3});
  const Tensor<T> y = embedding(table, Tensor<std::int32_t>::from({2, 2}, {3, 0, 1, 3}), 2).value();
  CHECK(y.shape() == Shape{2, 2, 3});
  CHECK(values(y) == std::vector<T>{18, 20, 22, 0, 2, 4, 6, 8, 10, 18, 20, 22});
  CHECK(embedding(table, Tensor<std::int32_t>(Shape{0})).shape() == Shape{0, 3});
}

TEST_CASE("embedding: the padding row gets no gradient, though it is looked up") {
  Tape<double> tape;
  const Var<double> table = tape.variable(Tensor<double>::ones({3, 2}));
  const Var<double> y = embedding(table, Tensor<std::int32_t>::from({4}, {0, 1, 0, 2}), 1, 0);
  CHECK(values(y.value()) == std::vector<double>(8, 1.0));
  tape.backward(sum(y));
  CHECK(values(tape.gradient(table)) == std::vector<double>{0, 0, 1, 1, 1, 1});
}

TEST_CASE("embedding: ids and tables that do not fit") {
  const Var<float> table = Tensor<float>::zeros({23, 4});
  for (const std::int32_t bad : {23, -1, 1000000}) {
    const std::string message = message_of<IndexError>([&] {
      (void)embedding(table, Tensor<std::int32_t>::from({3}, {1, bad, 2}));
    });
    CAPTURE(message);
    CHECK(contains(message, "[embedding]"));
    CHECK(contains(message, std::to_string(bad)));
    CHECK(contains(message, "23"));
  }
  CHECK(message_of<ShapeError>([] {
          (void)embedding(Var<float>(Tensor<float>::zeros({4})), Tensor<std::int32_t>::zeros({1}));
        }) == "[embedding] table of shape (4,) must be (vocabulary, d)");
}

TEST_CASE("embedding: a padding index is a row of the table or -1") {
  const Var<double> table = Tensor<double>::ones({4, 2});
  const auto ids = Tensor<std::int32_t>::from({2}, {0, 3});
  for (const index_t wrong : {index_t{-2}, index_t{4}, index_t{1} << 32}) {  // the last one is 0 in 32 bits
    CAPTURE(wrong);
    CHECK(message_of<ValueError>([&] { (void)embedding(table, ids, 1, wrong); }) ==
          "[embedding] padding_index is " + std::to_string(wrong) +
              ", must be an id of the table of shape (4, 2), or -1 for none");
  }
  for (const index_t right : {index_t{-1}, index_t{0}, index_t{3}}) (void)embedding(table, ids, 1, right);
}
