// Package listwatch maintains a reduced copy of the objects of a resource. It lists the
// objects in pages, watches from there on, and keeps only the part of each that its user
// selects, so that a small node can follow a large cluster.
package listwatch
