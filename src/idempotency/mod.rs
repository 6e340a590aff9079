//! Answers that are kept: a request that is sent again gets the first answer, and does not run again.
