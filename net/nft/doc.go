// Package nft owns one table of nftables, inet tinylet, in one network
// namespace: what leaves the pods' network is masqueraded, host ports lead to
// pods, and addresses of services to their endpoints. It touches no other
// table, and needs no program.
//
// Whatever changes is one transaction of the kernel, so that packets see what
// was before or what is after, and a process that is killed leaves nothing half
// done. Several processes may change the table at once: each transaction that
// relies on what it has read names the generation that it has read
// (NFNL_BATCH_GENID), and the kernel refuses it when another came first.
//
// What is sent is the bytecode of include/uapi/linux/netfilter/nf_tables.h, in
// the form that the nft program lists as source text again.
package nft
