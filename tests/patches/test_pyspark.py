"""The attributes of PySpark that are set are still those that it looks at.

`tests/bulk/test_session.py` kills a Java process, and starts another session in the same process.
"""

import subprocess
import sys

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession


pytestmark = pytest.mark.spark


def test_a_context_begins_with_and_ends_by_the_attributes_that_are_set():
    assert {"_active_spark_context", "_gateway", "_jvm"} <= vars(SparkContext).keys()
    assert {"_gateway", "_jvm"} <= {*SparkContext._ensure_initialized.__code__.co_names}
    assert {"_jsc", "_active_spark_context"} <= {*SparkContext.stop.__code__.co_names}
    assert "_instantiatedSession" in SparkSession.Builder.getOrCreate.__code__.co_names
    assert "_instantiatedSession" in vars(SparkSession)


PROGRAM = """
import subprocess
import sys

from pyspark import SparkContext
from rioni.patches.pyspark import active_context, forget_gateway

assert active_context() is None
forget_gateway()
assert SparkContext._gateway is SparkContext._jvm is None
"""


def test_there_is_no_context_before_the_first_session():
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)
