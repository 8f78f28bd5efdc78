"""Datapipes that are read by index or key."""

from tensorgrad.utils.data.datapipes.map.callable import MapperMapDataPipe as Mapper
from tensorgrad.utils.data.datapipes.map.combinatorics import ShufflerIterDataPipe as Shuffler
from tensorgrad.utils.data.datapipes.map.combining import ConcaterMapDataPipe as Concater
from tensorgrad.utils.data.datapipes.map.combining import ZipperMapDataPipe as Zipper
from tensorgrad.utils.data.datapipes.map.grouping import BatcherMapDataPipe as Batcher
from tensorgrad.utils.data.datapipes.map.utils import SequenceWrapperMapDataPipe as SequenceWrapper

__all__ = ["Batcher", "Concater", "Mapper", "SequenceWrapper", "Shuffler", "Zipper"]
