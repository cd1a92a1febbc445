import pathlib
import re
import unittest

import forklift


class Version(unittest.TestCase):
    def test_package_and_library_agree_with_the_manifest(self):
        manifest = pathlib.Path(__file__).resolve().parents[3] / "Cargo.toml"
        version = re.search(r'^version = "([^"]+)"', manifest.read_text(), re.M).group(1)
        self.assertEqual(forklift.version(), version)
        self.assertEqual(forklift.__version__, version)


if __name__ == "__main__":
    unittest.main()
