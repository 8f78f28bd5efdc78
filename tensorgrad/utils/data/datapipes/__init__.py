"""Datapipes: data sets that are made of other data sets, step by step."""

from tensorgrad.utils.data.datapipes import iter as iter
from tensorgrad.utils.data.datapipes import map as map
