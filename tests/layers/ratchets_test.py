"""Tests that the measures of the tree stay within ratchets.txt, whose limits only fall.
tests/layers/measure.py prints and lowers the limits."""
import pathlib
import tempfile
import unittest

import measure


class MeasureTest(unittest.TestCase):
    def test_counts_methods_and_fields_of_classes(self):
        found, inner = measure.classes_of("a.h", """
class A final : public B {
 public:
  explicit A(int size) : size_(size) {}
  ~A();
  A(const A&) = delete;
  virtual int size() const { return size_; }  // int no_method();
  static Result<std::map<int, std::string>> Read(const std::string& text = "f(x);");
  using OnDone = std::function<void(int)>;
  struct Row {
    int a = 1, b;
    std::function<void(int)> call;
  };

 private:
  friend class C;
  void Add() DSL_REQUIRES(mutex_);
  static constexpr int kMost = Most(3);
  int size_ DSL_GUARDED_BY(mutex_) = 0;
  std::vector<int> items_{1, 2};
};
""")
        self.assertEqual(("A", 4, 3, 1, 2), (found.name, found.methods, found.public_methods, found.virtuals, found.fields))
        self.assertEqual(("Row", 0, 2), (inner.name, inner.methods, inner.fields))

    def test_counts_lines_of_functions(self):
        found = list(measure.functions_of("a.cc", """namespace a {
int Sum(const std::vector<int>& items) {
  int sum = 0;
  for (int item : items) {
    sum += item;
  }
  return sum;
}
Thing::Thing(int a)
    : a_{a}, b_(2) {
  Start();
}
}  // namespace a
"""))
        self.assertEqual([("Sum", 2, 7), ("Thing::Thing", 9, 4)], [(f.name, f.line, f.lines) for f in found])

    def test_recognizes_lists_of_rows_as_tables(self):
        self.assertTrue(measure.is_table('const Row kRows[] = {\n    {"a", 1},\n    {"b", 2,\n     "more"},\n};'))
        self.assertFalse(measure.is_table("int F() {\n  int a = 1;\n  return a;\n}"))


class LimitsTest(unittest.TestCase):
    def rows_of(self, **files):
        """Returns the rows that a tree of these files needs in ratchets.txt, without the rows of words and models."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = pathlib.Path(folder) / "base" / name.replace("_h", ".h").replace("_cc", ".cc")
                path.parent.mkdir(exist_ok=True)
                path.write_text(text)
            rows = measure.limits_of(measure.measure(pathlib.Path(folder)))
            return {name: value for name, value in rows.items() if not name.startswith(("words.", "models."))}

    def test_folder_of_46_files_needs_a_row(self):
        self.assertEqual({}, self.rows_of(**{f"a{i}_h": "" for i in range(45)}))
        self.assertEqual({"folder.base": 46}, self.rows_of(**{f"a{i}_h": "" for i in range(46)}))

    def test_class_of_31_methods_needs_a_row(self):
        methods = "".join(f"  void F{i}();\n" for i in range(31))
        self.assertEqual({"methods.A": 31}, self.rows_of(a_h="class A {\n" + methods + "};\n"))

    def test_function_of_61_lines_needs_a_row(self):
        self.assertEqual({}, self.rows_of(a_cc="void F() {\n" + "  a = 1;\n" * 58 + "}\n"))
        self.assertEqual({"function.base/a.cc:F": 61}, self.rows_of(a_cc="void F() {\n" + "  a = 1;\n" * 59 + "}\n"))


class RatchetsTest(unittest.TestCase):
    def test_no_limit_is_exceeded(self):
        limits = measure.read_limits()
        rows = measure.limits_of(measure.measure(measure.ROOT))
        self.assertEqual([], [f"{name}: {value}, limit {limits.get(name, 'as at the head of ratchets.txt')}"
                              for name, value in rows.items() if value > limits.get(name, -1)],
                         "`python3 tests/layers/measure.py` prints the measures, `--hits words.X` the hits of a pattern")


if __name__ == "__main__":
    unittest.main()
