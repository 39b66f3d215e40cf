// Package links finds where a crawl goes on: the links of a page, the URLs of
// a sitemap, and the one form of a URL by which it is known whether it has been
// there. It does no I/O and bounds what it takes from one text.
package links
