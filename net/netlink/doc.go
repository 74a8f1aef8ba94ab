// Package netlink builds and sends netlink messages for net/nft: several messages in
// one system call, acknowledgements and dumps. It knows no family's attributes. It is
// deleted when its last caller uses a library.
package netlink
