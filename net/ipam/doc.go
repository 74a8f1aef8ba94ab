// Package ipam owns which address of the node's pod networks belongs to whom:
// leases in a folder, which many processes change at once, which no kill tears
// and of which no two ever have the same address. It touches no interface.
//
//	<dir>/boot-<boot ID>/owners/<hash>        the lease, JSON for people too
//	<dir>/boot-<boot ID>/addresses/<address>  a symbolic link ../owners/<hash>
//
// Two rules carry all of it:
//
//   - Who makes the link has the address. symlink(2) fails where the name
//     exists, so the file system decides between owners, and the link says
//     whose it is from its first moment: it is never empty or torn.
//   - Whatever belongs to an owner, its file and the links to it, is only
//     changed by who holds the lock (flock) of the owner's file and has seen
//     that the file still has its name. So nobody ever removes a link that
//     meanwhile is another's.
//
// No lock is waited for by more than the calls of one owner, there is no
// index, and no call that gives or takes an address lists or reads the leases
// of others. The kernel drops the lock of a process that is killed, so what it
// left half-made is told from what is being made without looking at a clock,
// which on a board without one jumps by decades.
//
// A lease counts while its file is whole and all its links are there. A killed
// Take leaves links whose owner's file does not name them, a killed Release a
// file without some of its links: neither counts, and the next call of that
// owner, Collect, or a Take that finds no other address clears it away.
//
// Nothing is synced. A network namespace does not outlive the boot, so no
// lease does: each boot has a folder of its own, into which no power cut
// reaches back, and what a power cut tore lies in one that nobody reads. The
// same pod tends to get the same address all the same, since the first one
// that is tried comes from a hash of the pod's key.
//
// So nothing is lost where the folder is in a tmpfs such as /run, which costs
// about 7 KB of memory for a pod while it lives and no writes. On a disk the
// writes are the journal's: measured on ext4 with blocks of 4 KB, a Take or
// Release with a commit of its own is 70 KB to the device, 4 KB of them the
// lease; ten in one commit (of five seconds) are 120 KB, and a hundred pods
// that come and go within one are 64 KB.
package ipam
