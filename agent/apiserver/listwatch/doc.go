// Package listwatch keeps what a node needs to know of all objects of a resource,
// and no more of them: it lists them in pages, watches what becomes of them
// from there on, and keeps of each only what its user picks, so that a small
// board can follow a large cluster.
package listwatch
