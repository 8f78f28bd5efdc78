"""Datapipes that are read from start to end."""

from tensorgrad.utils.data.datapipes.iter.callable import CollatorIterDataPipe as Collator
from tensorgrad.utils.data.datapipes.iter.callable import MapperIterDataPipe as Mapper
from tensorgrad.utils.data.datapipes.iter.combinatorics import SamplerIterDataPipe as Sampler
from tensorgrad.utils.data.datapipes.iter.combinatorics import ShufflerIterDataPipe as Shuffler
from tensorgrad.utils.data.datapipes.iter.combining import ConcaterIterDataPipe as Concater
from tensorgrad.utils.data.datapipes.iter.combining import DemultiplexerIterDataPipe as Demultiplexer
from tensorgrad.utils.data.datapipes.iter.combining import ForkerIterDataPipe as Forker
from tensorgrad.utils.data.datapipes.iter.combining import MultiplexerIterDataPipe as Multiplexer
from tensorgrad.utils.data.datapipes.iter.combining import ZipperIterDataPipe as Zipper
from tensorgrad.utils.data.datapipes.iter.filelister import FileListerIterDataPipe as FileLister
from tensorgrad.utils.data.datapipes.iter.fileopener import FileOpenerIterDataPipe as FileOpener
from tensorgrad.utils.data.datapipes.iter.grouping import BatcherIterDataPipe as Batcher
from tensorgrad.utils.data.datapipes.iter.grouping import GrouperIterDataPipe as Grouper
from tensorgrad.utils.data.datapipes.iter.grouping import UnBatcherIterDataPipe as UnBatcher
from tensorgrad.utils.data.datapipes.iter.routeddecoder import RoutedDecoderIterDataPipe as RoutedDecoder
from tensorgrad.utils.data.datapipes.iter.selecting import FilterIterDataPipe as Filter
from tensorgrad.utils.data.datapipes.iter.sharding import ShardingFilterIterDataPipe as ShardingFilter
from tensorgrad.utils.data.datapipes.iter.streamreader import StreamReaderIterDataPipe as StreamReader
from tensorgrad.utils.data.datapipes.iter.utils import IterableWrapperIterDataPipe as IterableWrapper

__all__ = [
    "Batcher",
    "Collator",
    "Concater",
    "Demultiplexer",
    "FileLister",
    "FileOpener",
    "Filter",
    "Forker",
    "Grouper",
    "IterableWrapper",
    "Mapper",
    "Multiplexer",
    "RoutedDecoder",
    "Sampler",
    "ShardingFilter",
    "Shuffler",
    "StreamReader",
    "UnBatcher",
    "Zipper",
]
