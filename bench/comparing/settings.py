# SPDX-License-Identifier: MIT
"""Changes to the kernel's swap, each recorded before it is made."""
import os

from . import Trouble
from .system import ZRAM_CONTROL, selected

ZSWAP = '/sys/module/zswap/parameters'
ZSWAP_SLAB = '/sys/kernel/slab/zswap_entry'
PAGE_CLUSTER = '/proc/sys/vm/page-cluster'
FOLIOS_64K = '/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled'
FOLIOS_64K_STATS = '/sys/kernel/mm/transparent_hugepage/hugepages-64kB/stats'
THP = '/sys/kernel/mm/transparent_hugepage/enabled'
PAGE = 4096


def zram_missing(system):
    if not system.exists(f'{ZRAM_CONTROL}/hot_add'):
        return 'the kernel has no zram (modprobe zram)'
    return None


def zswap_missing(system):
    if not system.exists(f'{ZSWAP}/enabled'):
        return 'the kernel has no zswap (CONFIG_ZSWAP)'
    return None


def zswap_was_on(system):
    """Since the boot. From then on the kernel (6.18) reads pages back one by one, also from zram,
    also when zswap is off again: any of them might lie in zswap. Nothing but a boot ends that."""
    return system.exists(ZSWAP_SLAB) or system.read(f'{ZSWAP}/enabled') == 'Y'


def folios_missing(system):
    if not system.exists(FOLIOS_64K):
        return 'the kernel has no folios of 64 KiB (Linux 6.8, CONFIG_TRANSPARENT_HUGEPAGE)'
    return None


def zswap_off(system, journal):
    if not zswap_missing(system):
        journal.set(f'{ZSWAP}/enabled', 'N')


def zswap_compressor(system):
    """lz4 if the kernel has it for zswap, else what is set."""
    names = [line.partition(':')[2].strip() for line in (system.read('/proc/crypto') or '')
             .splitlines() if line.startswith('name')]
    return 'lz4' if 'lz4' in names else system.read(f'{ZSWAP}/compressor')


def zswap_on(system, journal):
    journal.set(f'{ZSWAP}/compressor', zswap_compressor(system))
    journal.set(f'{ZSWAP}/enabled', 'Y')


def folios_64k(system, journal, on):
    """Without them, memory is in 4 KiB pages unless a program asks for huge ones."""
    if not folios_missing(system):
        journal.set(FOLIOS_64K, 'always' if on else 'never')


def page_cluster(system, journal, value):
    journal.set(PAGE_CLUSTER, str(value))


def round_up(size):
    return (size + PAGE - 1) // PAGE * PAGE


def swap_on_zram(system, journal, size, priority, codec='lz4'):
    """The folder of the device in /sys."""
    number = system.add_zram()
    journal.note('zram', number=number)
    folder, device = f'/sys/block/zram{number}', f'/dev/zram{number}'
    has = (system.read(f'{folder}/comp_algorithm') or '').replace('[', '').replace(']', '').split()
    if codec not in has:
        raise Trouble(f'zram has no {codec}: only {", ".join(has)}')
    system.write(f'{folder}/comp_algorithm', codec)
    system.write(f'{folder}/disksize', round_up(size))
    journal.note('swapon', path=device)
    system.swapon(device, priority)
    return folder


def swap_on_file(system, journal, path, size, priority):
    """Reserved whole: the kernel wants no holes. The file goes with the scratch folder."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.posix_fallocate(fd, 0, round_up(size))
        finally:
            os.close(fd)
    except OSError as e:
        raise Trouble(f'{path}: {e.strerror}') from None
    journal.note('swapon', path=path)
    system.swapon(path, priority)


def in_words(system):
    """Of the settings that all arms share."""
    return (f'page-cluster {system.read(PAGE_CLUSTER)}, huge pages '
            f'{selected(system.read(THP) or "none")}')
